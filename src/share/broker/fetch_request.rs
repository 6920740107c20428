// SPDX-License-Identifier: Apache-2.0
//! The bytes of a client's request, and of a broker's refusal.
//! docs/share-transport.md has them one by one.

use super::token::{TOKEN_BYTES, Token};
use crate::base::{Error, Result, Status, ensure, fail};
use crate::region::Access;

const MAX_NAME: usize = 255;
pub const MAX_REQUEST: usize = TOKEN_BYTES + 1 + MAX_NAME;
/// Maximum size of the message of an error reply, in bytes.
const MAX_MESSAGE: usize = 4096;

#[derive(Clone, Debug)]
pub struct FetchRequest {
    pub name: String,
    pub token: Token,
    /// The requested access; `None` for all that the token grants.
    pub access: Option<Access>,
}

impl FetchRequest {
    pub fn write(&self) -> Vec<u8> {
        let access: u8 = match self.access {
            None => 0,
            Some(Access::Read) => 1,
            Some(Access::ReadWrite) => 2,
        };
        [&self.token.0, &[access][..], self.name.as_bytes()].concat()
    }

    pub fn read(bytes: &[u8]) -> Result<Self> {
        let Some((token, [access, name @ ..])) = bytes.split_first_chunk::<TOKEN_BYTES>() else {
            fail!(Corrupt, "a request of {} bytes is too short", bytes.len());
        };
        let access = match access {
            0 => None,
            1 => Some(Access::Read),
            2 => Some(Access::ReadWrite),
            other => fail!(Corrupt, "the request contains access {other}, which is unknown"),
        };
        let Ok(name) = std::str::from_utf8(name) else { fail!(Corrupt, "the requested name is not UTF-8") };
        check_name(name).map_err(|error| error.with_status(Status::Corrupt))?;
        Ok(Self { name: name.to_string(), token: Token(*token), access })
    }
}

/// Whether something can be published under this name.
pub fn check_name(name: &str) -> Result<()> {
    ensure!(
        (1..=MAX_NAME).contains(&name.len()),
        InvalidArgument,
        "name has {} bytes; it must have 1 to {MAX_NAME}",
        name.len()
    );
    Ok(())
}

/// Why a client gets nothing.
pub struct Refusal(pub Error);

impl Refusal {
    pub fn write(&self) -> Vec<u8> {
        let text = self.0.message().as_bytes();
        [&(self.0.status() as i32).to_le_bytes(), &text[..text.len().min(MAX_MESSAGE)]].concat()
    }

    /// The refusal of these bytes. The message is another process's: it is cut short.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let Some((code, text)) = bytes.split_first_chunk::<4>() else {
            fail!(Corrupt, "a refusal of {} bytes is too short", bytes.len());
        };
        let code = i32::from_le_bytes(*code);
        let Some(status) = Status::from_code(code) else {
            fail!(Corrupt, "the refusal contains status {code}, which is unknown");
        };
        let text = String::from_utf8_lossy(&text[..text.len().min(MAX_MESSAGE)]);
        Ok(Self(Error::new(status, text.into_owned())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::error;

    #[test]
    fn a_written_request_is_read_back() {
        for access in [None, Some(Access::Read), Some(Access::ReadWrite)] {
            let request = FetchRequest { name: "schlüssel".into(), token: Token([7; 32]), access };
            let read = FetchRequest::read(&request.write()).unwrap();
            assert_eq!((read.name.as_str(), read.access), ("schlüssel", access));
            assert!(read.token.is(&request.token));
        }
    }

    #[test]
    fn an_invalid_request_fails() {
        let good =
            FetchRequest { name: "kv".into(), token: Token([7; 32]), access: Some(Access::Read) }.write();
        let mut other_access = good.clone();
        other_access[TOKEN_BYTES] = 3;
        let mut no_text = good.clone();
        no_text[TOKEN_BYTES + 1] = 0xff;
        let long = [&good[..], &[b'x'; 255]].concat();
        for bytes in [&good[..33], &good[..32], &[], &other_access, &no_text, &long] {
            assert_eq!(FetchRequest::read(bytes).unwrap_err().status(), Status::Corrupt, "{bytes:?}");
        }
    }

    #[test]
    fn a_reply_with_an_error_keeps_status_and_message() {
        let read = Refusal::read(&Refusal(error!(Busy, "come again")).write()).unwrap();
        assert_eq!((read.0.status(), read.0.message()), (Status::Busy, "come again"));
        let long = Refusal(Error::new(Status::Busy, "ü".repeat(5000))).write();
        assert_eq!(long.len(), 4 + MAX_MESSAGE);
        let hostile = [&(-7i32).to_le_bytes()[..], b"a\x1b[2J\xff"].concat();
        assert_eq!(Refusal::read(&hostile).unwrap().0.message(), "a\\u{1b}[2J\u{fffd}");
        assert!(Refusal::read(&[0; 8]).is_err() && Refusal::read(&[1; 3]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_a_request_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (FetchRequest::read(&bytes), Refusal::read(&bytes));
        }
    }
}
