//! Where we listen, and taking that place.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

use super::host::Hosts;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// `127.0.0.1:9464`, `[::1]:9464`; port 0: any free one.
    Tcp(SocketAddr),
    /// `unix:PATH`: a socket that only its owner may use.
    Unix(PathBuf),
}

/// Why we cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else does.
    #[error("{listen} is in use")]
    InUse {
        /// Where.
        listen: Listen,
    },
    /// The system refuses.
    #[error("cannot listen on {listen}")]
    Bind {
        /// Where.
        listen: Listen,
        /// Why.
        source: io::Error,
    },
    /// Others than this machine reach it, and nothing keeps them out.
    #[error("{listen} can be reached from other machines, and there is no token")]
    Open {
        /// Where.
        listen: Listen,
    },
    /// A file that is no socket stands there.
    #[error("{} is in the way: it is no socket", path.display())]
    InTheWay {
        /// The file.
        path: PathBuf,
    },
    /// The server's thread or its runtime cannot be made.
    #[error("cannot start the HTTP server")]
    Thread(#[source] io::Error),
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err("a path is missing after `unix:`") } else { Ok(Self::Unix(path.into())) };
        }
        let text = text.replacen("localhost:", "127.0.0.1:", 1);
        text.parse().map(Self::Tcp).map_err(|_| "give an address with a port, as in 127.0.0.1:9464, or unix:PATH")
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Listen {
    /// Whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Whose names requests may carry.
    pub fn hosts(&self) -> Hosts {
        match self {
            Self::Tcp(address) if address.ip().to_canonical().is_loopback() => Hosts::Loopback,
            Self::Tcp(_) | Self::Unix(_) => Hosts::Any,
        }
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(super) enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Takes the place. A socket file that nobody listens on any more is replaced.
pub(super) fn bind(listen: &Listen) -> Result<(Bound, Listen), ListenError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { listen: listen.clone() },
        _ => ListenError::Bind { listen: listen.clone(), source },
    };
    match listen {
        Listen::Tcp(address) => {
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let at = listener.local_addr().map_err(failed)?;
            Ok((Bound::Tcp(listener), Listen::Tcp(at)))
        }
        Listen::Unix(path) => {
            match std::fs::symlink_metadata(path) {
                Ok(meta) if !meta.file_type().is_socket() => {
                    return Err(ListenError::InTheWay { path: path.clone() });
                }
                Ok(_) if UnixStream::connect(path).is_ok() => {
                    return Err(ListenError::InUse { listen: listen.clone() });
                }
                Ok(_) => std::fs::remove_file(path).map_err(failed)?,
                Err(_) => {}
            }
            let listener = UnixListener::bind(path).map_err(failed)?;
            // Until here whoever may enter the folder could connect; nobody was served yet.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            Ok((Bound::Unix(listener, path.clone()), listen.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_sockets_are_read_and_the_rest_is_refused_with_an_example() {
        assert_eq!("localhost:1".parse(), Ok(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 1)))));
        assert_eq!("unix:/run/x".parse(), Ok(Listen::Unix("/run/x".into())));
        for bad in ["", "9464", ":9464", "example.org:80", "unix:", "127.0.0.1", "127.0.0.1:99999"] {
            bad.parse::<Listen>().expect_err(bad);
        }
        let is_local = |text: &str| text.parse::<Listen>().expect("valid").is_local();
        assert!(
            is_local("127.0.0.9:1") && is_local("[::1]:1") && is_local("[::ffff:127.0.0.1]:1") && is_local("unix:x")
        );
        assert!(!is_local("0.0.0.0:1") && !is_local("[::]:1") && !is_local("192.168.1.1:1"));
    }

    #[test]
    fn a_port_in_use_says_so() {
        let first = "127.0.0.1:0".parse().expect("valid");
        let (_held, at) = bind(&first).expect("binds");
        assert!(matches!(bind(&at), Err(ListenError::InUse { listen }) if listen == at));
    }

    #[test]
    fn a_dead_socket_is_replaced_a_live_one_and_a_file_are_not() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("s");
        let listen = Listen::Unix(path.clone());
        let (held, _) = bind(&listen).expect("binds");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert!(matches!(bind(&listen), Err(ListenError::InUse { .. })));
        drop(held);
        drop(bind(&listen).expect("nobody listens any more"));
        std::fs::remove_file(&path).expect("removes");
        std::fs::write(&path, "x").expect("writes");
        assert!(matches!(bind(&listen), Err(ListenError::InTheWay { .. })));
        assert_eq!(std::fs::read(&path).expect("reads"), b"x");
    }
}
