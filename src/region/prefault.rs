// SPDX-License-Identifier: Apache-2.0
//! Populating every page before use, in parallel: the kernel clears a few GB/s per thread.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::time::{Duration, Instant};

use rustix::mm::Advice;

use crate::base::retried::madvise;
use crate::base::{Error, Result, Status, error, log, thread};

/// The minimum number of bytes per thread.
const BYTES_A_THREAD: usize = 16 << 20;
/// Pages are populated in slices of this size, so that a stall is detected.
const SLICE: usize = 512 << 20;
/// If a slice takes longer, the kernel is compacting memory for huge pages: the rest gets ordinary pages.
const STALL: Duration = Duration::from_secs(2);

/// Populates a mapping that is not in use yet, part by part.
pub struct Prefault {
    address: usize,
    size: usize,
    page_size: u64,
    threads: u32,
    /// The maximum duration of a slice, while the rest may get ordinary pages instead.
    stall: Option<Duration>,
}

impl Prefault {
    /// Populates `size` bytes at `address`, with up to `threads` threads.
    pub(super) fn new(address: usize, size: usize, page_size: u64, threads: u32) -> Self {
        Self { address, size, page_size, threads, stall: None }
    }

    /// Uses ordinary pages once huge ones take too long.
    pub fn with_fallback(self) -> Self {
        Self { stall: Some(STALL), ..self }
    }

    /// Populates a part. Returns whether the memory after it, or a part of this one, has ordinary pages because huge ones took
    /// too long.
    pub fn populate(&mut self, offset: usize, length: usize) -> Result<bool> {
        let mut gave_up = false;
        for slice in (offset..offset + length).step_by(SLICE) {
            let size = SLICE.min(offset + length - slice);
            let began = Instant::now();
            touch(self.address + slice, size, self.page_size, self.threads)?;
            gave_up |= self.stall.is_some_and(|stall| began.elapsed() > stall) && self.give_up(slice + size);
        }
        Ok(gave_up)
    }

    /// Uses ordinary pages from `offset` on. Returns whether there are any.
    fn give_up(&mut self, offset: usize) -> bool {
        if offset >= self.size {
            return false;
        }
        log!(Warn, "allocating huge pages takes too long; ordinary pages are used from byte {offset} on");
        // SAFETY: advice for a part of the mapping that does not change its bytes.
        let advised = unsafe {
            madvise((self.address + offset) as *mut c_void, self.size - offset, Advice::LinuxNoHugepage)
        };
        if let Err(errno) = advised {
            log!(Warn, "request ordinary pages: {errno}");
        }
        self.stall = None;
        true
    }
}

/// Populates every page of a range, with up to `threads` threads.
fn touch(address: usize, size: usize, page_size: u64, threads: u32) -> Result<()> {
    let unit = (page_size as usize).max(super::pages::transparent_huge_page_size());
    let threads = (threads as usize).clamp(1, size.div_ceil(BYTES_A_THREAD));
    if threads == 1 {
        return populate(address, size);
    }
    let part = size.div_ceil(threads).next_multiple_of(unit);
    std::thread::scope(|scope| {
        let parts = (0..size).step_by(part).map(|offset| (address + offset, part.min(size - offset)));
        let running: Vec<_> = parts
            .map(|(start, length)| {
                thread::spawn_scoped(scope, "kvmem-prefault", move || populate(start, length))
            })
            .collect();
        running.into_iter().try_for_each(|thread| {
            thread?.join().unwrap_or_else(|_| Err(error!(Panic, "a thread that touched pages panicked")))
        })
    })
}

fn populate(start: usize, length: usize) -> Result<()> {
    // SAFETY: the range belongs to a private writable mapping that is not in use yet.
    let result = unsafe { madvise(start as *mut c_void, length, Advice::LinuxPopulateWrite) };
    match result {
        Ok(()) => Ok(()),
        // Kernels before 5.14.
        Err(rustix::io::Errno::INVAL) => {
            write_each_page(start, length);
            Ok(())
        }
        // The kernel's errors for a mapping that it cannot populate.
        Err(errno @ (rustix::io::Errno::FAULT | rustix::io::Errno::HWPOISON)) => {
            Err(Error::errno(format!("fill {length} bytes with pages"), errno)
                .with_status(Status::OutOfMemory))
        }
        Err(errno) => Err(Error::errno(format!("fill {length} bytes with pages"), errno)),
    }
}

fn write_each_page(start: usize, length: usize) {
    for offset in (0..length).step_by(rustix::param::page_size()) {
        // SAFETY: inside the range above. A volatile write of the same value, which the compiler does not remove.
        unsafe {
            let byte = (start + offset) as *mut u8;
            byte.write_volatile(byte.read_volatile());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{Mapping, Pages};
    use super::super::pages::{residency, transparent_huge_page_size};
    use super::*;

    const HALF: usize = 4 << 20;

    /// Memory for which huge pages are requested, and its population with this fallback.
    fn memory(stall: Duration) -> (Mapping, Prefault) {
        let mapping = Mapping::private(2 * HALF, Pages::AlignedTo(transparent_huge_page_size())).unwrap();
        let address = mapping.address() as usize;
        // SAFETY: advice for the mapping above.
        let _ = unsafe { madvise(mapping.address(), mapping.size(), Advice::LinuxHugepage) };
        let page_size = rustix::param::page_size() as u64;
        let prefault = Prefault { stall: Some(stall), ..Prefault::new(address, 2 * HALF, page_size, 2) };
        (mapping, prefault)
    }

    #[test]
    fn after_a_stall_the_remaining_memory_has_small_pages() {
        let (memory, mut prefault) = memory(Duration::ZERO);
        assert!(prefault.populate(0, HALF).unwrap());
        // Once is enough.
        assert!(!prefault.populate(HALF, HALF).unwrap());
        let rest = residency(memory.address() as usize + HALF, HALF).unwrap();
        assert_eq!((rest.resident, rest.transparent_huge), (HALF as u64, 0));
    }

    #[test]
    fn without_a_stall_huge_pages_are_kept_to_the_end() {
        let (_memory, mut prefault) = memory(Duration::MAX);
        assert!(!prefault.populate(0, HALF).unwrap());
        assert!(!prefault.populate(HALF, HALF).unwrap());
    }

    #[test]
    fn a_stall_at_the_end_has_no_effect() {
        let (_memory, mut prefault) = memory(Duration::ZERO);
        assert!(!prefault.populate(0, 2 * HALF).unwrap());
    }
}
