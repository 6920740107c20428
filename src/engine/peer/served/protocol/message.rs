// SPDX-License-Identifier: Apache-2.0
//! What a requester sends to the owner of a layout: notifications of NIXL. docs/served-transfers.md has them byte by byte.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::base::wire::Form;
use crate::base::{ProcessIdentity, Result, ensure};
use crate::nixl::ServiceId;
use crate::plan::Terms;
use crate::run::LeaseRequest;

const VERSION: u16 = 2;
const FORM: Form =
    Form { magic: b"KVMEMREQ", versions: VERSION..=VERSION, name: "request for a served transfer" };
/// The maximum size of the fields of a message.
pub const MAX_BYTES: usize = 256 << 10;
/// The maximum size of the terms of a request. Its other fields have less than the rest.
pub const MAX_TERMS: usize = MAX_BYTES - 512;

/// The maximum number of slots of a session.
pub const MAX_SLOTS: usize = 8;

/// 128 random bits that identify a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionKey(#[serde(with = "serde_bytes")] pub [u8; 16]);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub session: SessionKey,
    pub body: Body,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    Open(Arc<Open>),
    /// Chunks were read from the arena, or written to it.
    Progress {
        /// Number of chunks, from the first on.
        chunks: u64,
        /// That of the last chunk that was written to each slot.
        checksums: [u32; MAX_SLOTS],
    },
    /// Ends the session, whose requester accesses the arena no more, or the lease.
    Close,
    /// Leases blocks.
    Lease(Arc<LeaseRequest>),
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    pub process: ProcessIdentity,
    /// The requester writes to the layout, rather than reads from it.
    pub writes: bool,
    /// Number of bytes, by which both sides check that they count alike.
    pub bytes: u64,
    /// Bytes of each chunk but the last: no more than a slot has.
    pub chunk_size: u64,
    /// Chunks have checksums also in GPU memory, and the side that has the destination compares that, too.
    pub verifies: bool,
    /// What is moved, in the owner's terms.
    pub terms: Terms,
}

impl Body {
    /// Progress without checksums.
    pub fn progress(chunks: u64) -> Self {
        Self::Progress { chunks, checksums: [0; MAX_SLOTS] }
    }
}

impl Message {
    /// The notification to the owner. Fails if it is too long.
    pub fn write(&self, service: &ServiceId) -> Result<Vec<u8>> {
        let mut bytes = service.prefix().to_vec();
        let prefix = bytes.len();
        FORM.append(VERSION, self, &mut bytes)?;
        let size = bytes.len() - prefix;
        ensure!(
            size <= MAX_BYTES,
            Unsupported,
            "the request has {size} bytes, and {MAX_BYTES} are the most; its blocks are in too many separate spans"
        );
        Ok(bytes)
    }

    /// Reads what follows the id of the service in a notification. The bytes may be anything.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        ensure!(
            bytes.len() <= MAX_BYTES,
            Corrupt,
            "a request of {} bytes is longer than the maximum of {MAX_BYTES}",
            bytes.len()
        );
        FORM.read(bytes).map(|(_, message)| message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::base::wire::tests::{ensure_all_damage_is_found, of_version};

    const SERVICE: ServiceId = ServiceId([7; 16]);

    fn open(spans: usize) -> Message {
        let spans = [3u32, 0, 2].map(u32::to_le_bytes).concat().repeat(spans);
        let terms = Terms::raw("BLONHC".into(), [0, 3], [0, 2], [1, 2], [4, 16, 1, 2], spans);
        let process = ProcessIdentity::unknown();
        let body = Body::Open(Arc::new(Open {
            process,
            writes: true,
            bytes: 77,
            chunk_size: 4096,
            verifies: false,
            terms,
        }));
        Message { session: SessionKey([9; 16]), body }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for message in [
            open(2),
            Message {
                session: SessionKey([1; 16]),
                body: Body::Progress { chunks: u64::MAX, checksums: [u32::MAX; MAX_SLOTS] },
            },
            Message { session: SessionKey([2; 16]), body: Body::Close },
            Message {
                session: SessionKey([4; 16]),
                body: Body::Lease(Arc::new(LeaseRequest {
                    process: ProcessIdentity::unknown(),
                    number: 1,
                    milliseconds: u64::MAX,
                    writes: true,
                    blocks: vec![5; 16],
                })),
            },
        ] {
            let bytes = message.write(&SERVICE).unwrap();
            let rest = bytes.strip_prefix(&SERVICE.prefix()[..]).unwrap();
            assert_eq!(Message::read(rest).unwrap(), message);
            ensure_all_damage_is_found(rest, Message::read);
            assert_eq!(Message::read(&of_version(rest, 1)).unwrap_err().status(), Status::VersionMismatch);
        }
    }

    #[test]
    fn long_messages_are_neither_written_nor_read() {
        open(MAX_BYTES / 12).write(&SERVICE).unwrap_err().assert_is(Status::Unsupported, "");
        assert_eq!(Message::read(&vec![0; MAX_BYTES + 1]).unwrap_err().status(), Status::Corrupt);
    }
}
