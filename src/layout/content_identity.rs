// SPDX-License-Identifier: Apache-2.0
//! What the blocks of a layout contain, in bytes of the caller: a model, its revision, a data type. Shapes are equal by chance.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::{Result, ensure};

/// It is in the fingerprint of a file, which is one page, so that it is written at once.
const MAX: usize = 2048;
/// The longest text that a message contains.
const MAX_SHOWN: usize = 128;

/// Empty if the caller gave none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentIdentity(#[serde(with = "serde_bytes")] Vec<u8>);

impl ContentIdentity {
    /// No identity.
    pub const NONE: Self = Self(Vec::new());

    /// An identity of these bytes. Fails for more than a fingerprint can contain.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        ensure_size(bytes.len())?;
        Ok(Self(bytes.to_vec()))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the caller gave none.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails for one that was read, and is larger than any that [`Self::new`] returns.
    pub fn validate(&self) -> Result<()> {
        ensure_size(self.0.len())
    }

    /// The text, if it is short and can be printed.
    fn shown(&self) -> Option<&str> {
        let text = str::from_utf8(&self.0).ok().filter(|text| text.len() <= MAX_SHOWN)?;
        let is_printable =
            |letter: char| matches!(letter, '\'' | '"' | '\\') || letter.escape_debug().len() == 1;
        text.chars().all(is_printable).then_some(text)
    }
}

fn ensure_size(size: usize) -> Result<()> {
    ensure!(
        size <= MAX,
        InvalidArgument,
        "identity_size is {size}, it must be at most {MAX}; give a hash of what is longer"
    );
    Ok(())
}

impl fmt::Display for ContentIdentity {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shown() {
            Some("") => to.write_str("none"),
            Some(text) => write!(to, "'{text}'"),
            None => write!(to, "{} bytes with CRC-32C {:#010x}", self.0.len(), crc32c::crc32c(&self.0)),
        }
    }
}

#[cfg(test)]
impl ContentIdentity {
    /// One that only a hostile sender can have.
    pub fn too_large() -> Self {
        Self(vec![1; MAX + 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_text_that_can_be_printed_is_shown() {
        let text = |bytes: &[u8]| ContentIdentity::new(bytes).unwrap().to_string();
        assert_eq!(text(b""), "none");
        assert_eq!(text(br#"{"model": "llama-3"}"#), r#"'{"model": "llama-3"}'"#);
        assert_eq!(text("modèle".as_bytes()), "'modèle'");
        let hidden: [&[u8]; 4] = [b"a\nb", b"\xff", "a\u{202e}b".as_bytes(), &[b'a'; MAX_SHOWN + 1]];
        for bytes in hidden {
            let shown = text(bytes);
            assert!(shown.starts_with(&format!("{} bytes with CRC-32C 0x", bytes.len())), "{shown}");
        }
    }

    #[test]
    fn a_long_one_is_rejected() {
        assert!(ContentIdentity::new(&[1; MAX]).is_ok_and(|identity| identity.validate().is_ok()));
        let error = ContentIdentity::new(&[1; MAX + 1]).unwrap_err();
        assert!(error.message().contains("identity_size is 2049"), "{error}");
        assert!(ContentIdentity::too_large().validate().is_err());
    }
}
