// SPDX-License-Identifier: Apache-2.0
//! Control blocks in registered memory, which NIXL reads or writes for a peer while this process uses it: accessed by words,
//! whose values may be anything.
//! Fences order them with other bytes, also for devices. Each word does so for processors, too: ThreadSanitizer knows no fences.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::session_control;
use crate::region::{Region, fence_for_devices};

/// Replaces an entry that peers may read meanwhile. A peer that finds it also finds what was written before it. Does nothing
/// outside of the region, which must be host memory of this process.
pub fn write(address: u64, region: &Region, bytes: &[u8; session_control::ENTRY]) {
    if !contains(region, address, session_control::ENTRY) {
        return;
    }
    fence_for_devices();
    for (index, word) in bytes.chunks_exact(8).enumerate() {
        let mut value = [0; 8];
        value.copy_from_slice(word);
        // SAFETY: in the region, which is mapped and writable; this process accesses it here by atomic words only.
        let place = unsafe { AtomicU64::from_ptr((address as *mut u64).add(index)) };
        place.store(u64::from_ne_bytes(value), Ordering::Release);
    }
    fence_for_devices();
}

/// Marks all entries of a copy of a control block as unread. NIXL writes to it later.
pub fn forget(address: u64, region: &Region) {
    if !contains(region, address, session_control::SIZE) {
        return;
    }
    for entry in (0..session_control::SIZE).step_by(session_control::ENTRY) {
        // SAFETY: as in `write`.
        let place = unsafe { AtomicU64::from_ptr((address as *mut u8).add(entry).cast()) };
        place.store(session_control::UNREAD, Ordering::Relaxed);
    }
    fence(Ordering::SeqCst);
}

/// Copies a control block. NIXL may write to it meanwhile. It is empty outside of the region.
pub fn read(address: u64, region: &Region) -> [u8; session_control::SIZE] {
    let mut bytes = [0; session_control::SIZE];
    if !contains(region, address, session_control::SIZE) {
        return bytes;
    }
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        // SAFETY: as in `write`.
        let place = unsafe { AtomicU64::from_ptr((address as *mut u64).add(index)) };
        word.copy_from_slice(&place.load(Ordering::Acquire).to_ne_bytes());
    }
    fence_for_devices();
    bytes
}

/// Copies the control block of an arena of this process.
#[cfg(test)]
pub fn copy_of(address: u64) -> Box<[u8; session_control::SIZE]> {
    let mut bytes = Box::new([0; session_control::SIZE]);
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        // SAFETY: the test passes the address of an arena that exists, which is written by atomic words.
        let place = unsafe { AtomicU64::from_ptr((address as *mut u64).add(index)) };
        word.copy_from_slice(&place.load(Ordering::SeqCst).to_ne_bytes());
    }
    bytes
}

fn contains(region: &Region, address: u64, size: usize) -> bool {
    let end = address.checked_add(size as u64);
    address.is_multiple_of(8)
        && address >= region.address()
        && end.is_some_and(|end| end <= region.address() + region.size())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::message::SessionKey;
    use super::session_control::{Entry, GrantedSlots, SessionState, head, lease_of};
    use super::*;
    use crate::base::Status;
    use crate::nixl::ServiceId;
    use crate::region::SystemConfig;

    /// A read that reports success and moves nothing leaves the copy of the read before.
    #[test]
    fn a_copy_that_was_forgotten_is_none_until_it_is_read_again() {
        let (service, key) = (ServiceId([1; 16]), SessionKey([2; 16]));
        let size = session_control::SIZE as u64;
        let region = Region::system(&SystemConfig { size, ..SystemConfig::default() }).unwrap();
        let start = region.address();
        let open = SessionState::Open { slots: GrantedSlots::new(&[1]), chunks: 1, checksums: [3; 8] };
        write(start, &region, &head(&service, Duration::from_secs(1)));
        write(start + session_control::ENTRY as u64, &region, &open.entry(key));
        let is_open =
            |bytes| SessionState::find(bytes, key, 8).is_ok_and(|found| found == Entry::State(open.clone()));
        let bytes = read(start, &region);
        assert!(lease_of(&bytes, &service).is_ok() && is_open(&bytes));
        forget(start, &region);
        let bytes = read(start, &region);
        let error = lease_of(&bytes, &service).unwrap_err();
        assert!(error.status() == Status::Nixl && error.message().contains("moved nothing"), "{error}");
        assert_eq!(SessionState::find(&bytes, key, 8).unwrap(), Entry::Missing);
    }
}
