// SPDX-License-Identifier: Apache-2.0
//! What is done with bytes that another process may have sent. The fuzzer and the replay of its corpus do the same.

use kvmem::error::Status;
use kvmem::layout::Layout;
use kvmem::share::Manifest;

const HEADER: usize = 20;
/// The most file descriptors that a manifest of the corpus names, and some more.
const MOST_FDS: usize = 16;

/// Whether they are a share or a layout descriptor. Whatever they are, this ends, and an error says what it must.
pub fn read(bytes: &[u8]) -> bool {
    let share = (0..MOST_FDS).any(|fds| told(Manifest::read(bytes, fds)));
    share || told(Layout::check_descriptor(bytes))
}

fn told<T>(result: kvmem::error::Result<T>) -> bool {
    if let Err(error) = &result {
        assert!(
            matches!(error.status(), Status::Corrupt | Status::VersionMismatch),
            "damage is called {:?}: {error}",
            error.status()
        );
    }
    result.is_ok()
}

/// The same with a length and a checksum that are right, so that the reader goes on to the fields.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < HEADER {
        return bytes;
    }
    let length = (bytes.len() - HEADER) as u32;
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..16]), &bytes[HEADER..]);
    bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
    bytes
}
