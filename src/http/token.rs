//! The token that clients must know where not only this machine's own users reach us.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// Shorter ones can be guessed.
const LEAST: usize = 16;
const MOST: u64 = 4_096;

/// A token, kept as its digest: comparing digests takes the same time wherever they differ.
#[derive(Clone)]
pub struct Token([u8; 32]);

/// Says nothing of the token.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("cannot read the token file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds no usable token.
    #[error("the token in {} has {len} characters; at least {LEAST} are needed, and no spaces", path.display())]
    Weak {
        /// The file.
        path: PathBuf,
        /// Characters that it has.
        len: usize,
    },
    /// Others can write it.
    #[error("the token file {} can be written by others (mode {mode:o})", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

impl Token {
    /// Reads a file that holds nothing else; white space around it does not count.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o022 != 0 {
            return Err(TokenError::Writable { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).map_err(failed)?;
        Self::new(text.trim()).ok_or_else(|| TokenError::Weak { path: path.to_owned(), len: text.trim().len() })
    }

    /// Of a text; `None` where it is too short or holds spaces.
    pub fn new(text: &str) -> Option<Self> {
        let is_usable = text.len() >= LEAST && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_usable.then(|| Self(Sha256::digest(text).into()))
    }

    /// Whether an `Authorization` header knows the token: as a bearer, or as the password that a browser asks for.
    pub fn admits(&self, header: Option<&[u8]>) -> bool {
        let Some((scheme, value)) = header.and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| h.split_once(' '))
        else {
            return false;
        };
        let given = if scheme.eq_ignore_ascii_case("bearer") {
            value.trim().as_bytes().to_vec()
        } else if scheme.eq_ignore_ascii_case("basic") {
            let Ok(pair) = STANDARD.decode(value.trim()) else { return false };
            let Some(colon) = memchr::memchr(b':', &pair) else { return false };
            pair[colon + 1..].to_vec()
        } else {
            return false;
        };
        <[u8; 32]>::from(Sha256::digest(given)) == self.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn bearers_and_passwords_are_admitted_and_nothing_else() {
        let token = Token::new("0123456789abcdef").expect("long enough");
        let basic = format!("Basic {}", STANDARD.encode("anyone:0123456789abcdef"));
        for good in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef", &basic] {
            assert!(token.admits(Some(good.as_bytes())), "{good}");
        }
        for bad in ["", "Bearer", "Bearer ", "Bearer 0123456789abcdee", "0123456789abcdef", "Basic !", "Digest x"] {
            assert!(!token.admits(Some(bad.as_bytes())), "{bad}");
        }
        assert!(!token.admits(None) && !token.admits(Some(b"Bearer \xff")));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn weak_and_foreign_token_files_are_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            std::fs::write(&path, text).expect("writes");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("sets");
            Token::read(&path)
        };
        assert!(read("0123456789abcdef\n", 0o400).expect("good").admits(Some(b"Bearer 0123456789abcdef")));
        std::fs::remove_file(&path).expect("removes");
        assert!(matches!(Token::read(&path), Err(TokenError::Read { .. })));
        for weak in ["", "short\n", "0123456789 abcdef"] {
            assert!(matches!(read(weak, 0o600), Err(TokenError::Weak { .. })), "{weak:?}");
        }
        assert!(matches!(read("0123456789abcdef", 0o622), Err(TokenError::Writable { mode: 0o622, .. })));
    }
}
