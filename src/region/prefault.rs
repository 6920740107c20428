// SPDX-License-Identifier: Apache-2.0
//! Populating every page before use, in parallel: the kernel clears a few GB/s per thread.

use std::ffi::c_void;

use rustix::mm::{Advice, madvise};

use crate::error::{Error, Result, Status};

/// The minimum number of bytes per thread.
const BYTES_A_THREAD: usize = 16 << 20;

/// Populates every page of a range, with up to `threads` threads.
pub fn touch(address: usize, size: usize, page_size: u64, threads: u32) -> Result<()> {
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
                std::thread::Builder::new().spawn_scoped(scope, move || populate(start, length)).map_err(
                    |error| {
                        Error::new(Status::OutOfMemory, format!("start a thread to touch pages: {error}"))
                    },
                )
            })
            .collect();
        running.into_iter().try_for_each(|thread| {
            thread?
                .join()
                .unwrap_or_else(|_| Err(Error::new(Status::Panic, "a thread that touched pages panicked")))
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
