//! Which `Host` a request may name. A page of a stranger can point its own name at this machine and then read what a
//! browser reaches here; such a request carries the stranger's name. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whose names are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Names and addresses of this machine to itself only.
    Loopback,
    /// Any well-formed one: a token or the file system keeps strangers out.
    Any,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No `Host`, more than one, or no host at all: 400.
    Malformed,
    /// Another's name: 421.
    Misdirected,
}

impl Hosts {
    /// Judges the `Host` headers, and the request target's own authority where it has one.
    pub fn check(self, headers: &[&[u8]], authority: Option<&str>) -> Result<(), Refusal> {
        let [header] = headers else { return Err(Refusal::Malformed) };
        let header = std::str::from_utf8(header).map_err(|_| Refusal::Malformed)?;
        for host in [Some(header), authority].into_iter().flatten() {
            self.judge(host)?;
        }
        Ok(())
    }

    fn judge(self, host: &str) -> Result<(), Refusal> {
        let name = without_port(host).ok_or(Refusal::Malformed)?;
        if self == Self::Any || is_loopback(name) { Ok(()) } else { Err(Refusal::Misdirected) }
    }
}

/// The host without its port; `None` where it is malformed.
fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (&host[..address.len() + 2], rest.strip_prefix(':').or(rest.is_empty().then_some("")))
        }
        None => host.split_once(':').map_or((host, Some("")), |(name, port)| (name, Some(port))),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    let is_port = port?.len() <= 5 && port?.chars().all(|c| c.is_ascii_digit());
    (!name.is_empty() && name.chars().all(is_name) && is_port).then_some(name)
}

fn is_loopback(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("localhost", Ok(()))]
    #[case("localhost:9464", Ok(()))]
    #[case("LOCALHOST.:9090", Ok(()))]
    #[case("127.0.0.1", Ok(()))]
    #[case("127.8.8.8:1", Ok(()))]
    #[case("[::1]", Ok(()))]
    #[case("[::1]:9464", Ok(()))]
    #[case("evil.com", Err(Refusal::Misdirected))]
    #[case("localhost.evil.com", Err(Refusal::Misdirected))]
    #[case("127.0.0.1.evil.com", Err(Refusal::Misdirected))]
    #[case("10.0.0.1", Err(Refusal::Misdirected))]
    #[case("0.0.0.0", Err(Refusal::Misdirected))]
    #[case("[::]", Err(Refusal::Misdirected))]
    #[case("[2001:db8::1]:80", Err(Refusal::Misdirected))]
    #[case("", Err(Refusal::Malformed))]
    #[case(":80", Err(Refusal::Malformed))]
    #[case("localhost:", Ok(()))]
    #[case("localhost:http", Err(Refusal::Malformed))]
    #[case("::1", Err(Refusal::Malformed))]
    #[case("[::1", Err(Refusal::Malformed))]
    #[case("[::1]x", Err(Refusal::Malformed))]
    #[case("[localhost]", Err(Refusal::Malformed))]
    #[case("user@localhost", Err(Refusal::Malformed))]
    #[case("local host", Err(Refusal::Malformed))]
    fn hosts(#[case] host: &str, #[case] expected: Result<(), Refusal>) {
        assert_eq!(Hosts::Loopback.check(&[host.as_bytes()], None), expected, "{host}");
        let any = if expected == Err(Refusal::Malformed) { expected } else { Ok(()) };
        assert_eq!(Hosts::Any.check(&[host.as_bytes()], None), any, "{host}");
    }

    #[test]
    fn exactly_one_host_and_a_target_may_not_say_otherwise() {
        let check = |headers: &[&[u8]], target| Hosts::Loopback.check(headers, target);
        assert_eq!(check(&[], None), Err(Refusal::Malformed));
        assert_eq!(check(&[b"localhost", b"localhost"], None), Err(Refusal::Malformed));
        assert_eq!(check(&[b"\xff"], None), Err(Refusal::Malformed));
        assert_eq!(check(&[b"localhost"], Some("evil.com")), Err(Refusal::Misdirected));
        assert_eq!(check(&[b"localhost"], Some("localhost:9464")), Ok(()));
    }
}
