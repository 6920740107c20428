// SPDX-License-Identifier: Apache-2.0
//! A parcel, which is a share in transit. How it is split into messages, and their headers. docs/share-transport.md specifies the bytes.
//!
//! Pure: no I/O. Reading returns a header or an error for any bytes.

use std::ops::Range;
use std::os::fd::OwnedFd;

use super::message::FDS_A_MESSAGE;
use crate::base::{Result, ensure, fail};

/// The size of the header of each message in bytes.
pub const HEADER: usize = 40;
/// The maximum number of bytes of a parcel in one message. A message must fit a socket's send buffer.
pub const CHUNK: usize = 32 << 10;

const MAGIC: &[u8; 8] = b"KVMEMMSG";
const VERSION: u16 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Share = 1,
    /// The request of a client to a broker.
    Request = 2,
    /// The reply of a broker without a share.
    Refusal = 3,
}

impl MessageKind {
    fn from_code(code: u16) -> Option<Self> {
        [Self::Share, Self::Request, Self::Refusal].into_iter().find(|kind| *kind as u16 == code)
    }
}

/// The fields that are equal in all messages of a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParcelInfo {
    pub kind: MessageKind,
    pub bytes: u32,
    pub fds: u32,
}

/// The header of one message of a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub whole: ParcelInfo,
    /// The index of the message, from 0.
    pub chunk: u32,
    /// The number of the parcel's bytes in this message.
    pub bytes: u32,
    /// The number of file descriptors with this message.
    pub fds: u32,
    /// CRC-32C of the bytes of the parcel in this message.
    pub checksum: u32,
}

impl ParcelInfo {
    /// A parcel of this size. Fails if it is too large.
    pub fn new(kind: MessageKind, bytes: usize, fds: usize) -> Result<Self> {
        ensure!(
            bytes <= MAX_BYTES,
            InvalidArgument,
            "a share has at most {MAX_BYTES} bytes, this one has {bytes}"
        );
        ensure!(
            fds <= MAX_FDS,
            InvalidArgument,
            "a share has at most {MAX_FDS} file descriptors, this one has {fds}"
        );
        Ok(Self { kind, bytes: bytes as u32, fds: fds as u32 })
    }

    pub fn chunks(&self) -> u32 {
        let bytes = self.bytes.div_ceil(CHUNK as u32);
        bytes.max(self.fds.div_ceil(FDS_A_MESSAGE as u32)).max(1)
    }

    /// The bytes and the file descriptors of message `chunk`.
    pub fn piece(&self, chunk: u32) -> (Range<usize>, Range<usize>) {
        let span = |total: u32, most: usize| {
            let total = total as usize;
            let begin = (chunk as usize).saturating_mul(most).min(total);
            begin..(begin + most).min(total)
        };
        (span(self.bytes, CHUNK), span(self.fds, FDS_A_MESSAGE))
    }
}

impl Header {
    pub fn write(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let words = [self.whole.bytes, self.whole.fds, self.chunk, self.bytes, self.fds, self.checksum];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(self.whole.kind as u16).to_le_bytes());
        for (slot, word) in bytes[12..36].chunks_exact_mut(4).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header. Fails unless it is consistent in itself.
    pub fn read(bytes: &[u8; HEADER]) -> Result<Self> {
        ensure!(bytes.starts_with(MAGIC), Corrupt, "the bytes on the socket are not a message of kvmem");
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let actual = crc32c::crc32c(&bytes[..36]);
        ensure!(
            word(36) == actual,
            Corrupt,
            "a message header's checksum is {actual:#x}, the header contains {:#x}",
            word(36)
        );
        ensure!(
            half(8) == VERSION,
            VersionMismatch,
            "the message has version {}, this library reads version {VERSION}",
            half(8)
        );
        let Some(kind) = MessageKind::from_code(half(10)) else {
            fail!(Corrupt, "the message has kind {}, which is unknown", half(10));
        };
        let whole = ParcelInfo { kind, bytes: word(12), fds: word(16) };
        let header = Self { whole, chunk: word(20), bytes: word(24), fds: word(28), checksum: word(32) };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<()> {
        let Self { whole, bytes, fds, .. } = *self;
        ensure!(
            whole.bytes as usize <= MAX_BYTES && whole.fds as usize <= MAX_FDS,
            Corrupt,
            "a message announces a share of {} bytes and {} file descriptors; the maximum is {MAX_BYTES} and {MAX_FDS}",
            whole.bytes,
            whole.fds
        );
        ensure!(
            bytes as usize <= CHUNK && fds as usize <= FDS_A_MESSAGE,
            Corrupt,
            "a message announces {bytes} bytes and {fds} file descriptors; the maximum is {CHUNK} and {FDS_A_MESSAGE}"
        );
        Ok(())
    }
}

/// The maximum size of a parcel in bytes.
pub const MAX_BYTES: usize = 64 << 20;
/// The maximum number of file descriptors of a parcel.
pub const MAX_FDS: usize = 1 << 16;

/// The data that one process sends to another. The transport does not interpret it.
#[derive(Debug, Default)]
pub struct Parcel {
    /// The wire form of a share.
    pub bytes: Vec<u8>,
    /// The file descriptors, in the order that the bytes refer to. All are close-on-exec.
    pub fds: Vec<OwnedFd>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Status;

    fn header() -> Header {
        let whole = ParcelInfo { kind: MessageKind::Share, bytes: 100_000, fds: 300 };
        Header { whole, chunk: 1, bytes: 32 << 10, fds: 47, checksum: 0x1234_5678 }
    }

    #[test]
    fn a_written_header_is_read_back() {
        assert_eq!(Header::read(&header().write()).unwrap(), header());
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        for bit in 0..HEADER * 8 {
            let mut bytes = header().write();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::read(&bytes).unwrap_err().status(), Status::Corrupt, "bit {bit}");
        }
    }

    #[test]
    fn sizes_beyond_the_limits_fail() {
        let whole = header().whole;
        let hostile = [
            Header { whole: ParcelInfo { bytes: MAX_BYTES as u32 + 1, ..whole }, ..header() },
            Header { whole: ParcelInfo { fds: u32::MAX, ..whole }, ..header() },
            Header { bytes: CHUNK as u32 + 1, ..header() },
            Header { fds: 254, ..header() },
        ];
        for header in hostile {
            assert_eq!(Header::read(&header.write()).unwrap_err().status(), Status::Corrupt, "{header:?}");
        }
    }

    #[test]
    fn another_version_is_reported() {
        let mut bytes = header().write();
        bytes[8] = 2;
        let checksum = crc32c::crc32c(&bytes[..36]);
        bytes[36..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Header::read(&bytes).unwrap_err().status(), Status::VersionMismatch);
    }

    proptest! {
        #[test]
        fn the_pieces_of_a_parcel_are_complete_and_in_order(bytes in 0..MAX_BYTES, fds in 0..MAX_FDS) {
            let whole = ParcelInfo::new(MessageKind::Share, bytes, fds).unwrap();
            let (mut next_byte, mut next_fd) = (0, 0);
            for chunk in 0..whole.chunks() {
                let (bytes, fds) = whole.piece(chunk);
                prop_assert_eq!((bytes.start, fds.start), (next_byte, next_fd));
                prop_assert!(bytes.len() <= CHUNK && fds.len() <= FDS_A_MESSAGE);
                prop_assert!(!(bytes.is_empty() && fds.is_empty()) || whole.chunks() == 1);
                (next_byte, next_fd) = (bytes.end, fds.end);
            }
            prop_assert_eq!((next_byte, next_fd), (bytes, fds));
        }

        #[test]
        fn any_bytes_are_read_as_a_header_or_an_error(bytes in proptest::array::uniform32(any::<u8>())) {
            let mut all = header().write();
            all[8..].copy_from_slice(&bytes);
            let _ = Header::read(&all);
        }
    }
}
