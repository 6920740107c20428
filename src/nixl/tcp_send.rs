// SPDX-License-Identifier: Apache-2.0
//! The death of a peer over TCP does not end this process.
//!
//! TCP has no remote reads, so UCX emulates them: the owner of the memory gets a request, and sends the bytes. A write shorter than
//! UCX's threshold is emulated too: its owner sends a confirmation. If the connection has broken meanwhile, because the reader was
//! killed, UCX's transport reports that from the function that sends, and the code that replies takes every failure but a full
//! socket for a bug of UCX and aborts: "ucp_request.inl: Fatal: unexpected error: Endpoint timeout". No setting of UCX changes
//! that: it is the owner who is aborted, whatever it does itself, and the requests may be those of any user of UCX.
//!
//! So UCX does not learn of a broken connection when it sends. Its calls of `ucs_socket_send_nb` reach [`send`] below, which takes
//! the bytes as the kernel does while it does not know yet that the peer has ended. UCX watches every connection for bytes to
//! receive, which also reports its end; what follows there handles it: requests fail, and the endpoint is closed.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::io::{Error, ErrorKind};
use std::mem::size_of;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::param::page_size;

use super::dynamic::{DynamicEntry, Section};
use crate::base::{Mutex, log};

/// UCX's function for a part of a message: `ucs_status_t (int, const void *, size_t *)`. The status is one byte wide.
const NAME: &CStr = c"ucs_socket_send_nb";
type Send = unsafe extern "C" fn(c_int, *const c_void, *mut usize) -> i8;

const OK: i8 = 0;
const NO_PROGRESS: i8 = -10;

/// Sends what the socket takes. After a failure the connection is ended in both directions, so that what was not sent leaves no
/// gap in the stream, and that receiving reports the end.
///
/// # Safety
/// `size` bytes at `data`, and the size is written.
unsafe extern "C" fn send(socket: c_int, data: *const c_void, size: *mut usize) -> i8 {
    // SAFETY: the caller's promise.
    let sent = unsafe { libc::send(socket, data, *size, libc::MSG_NOSIGNAL) };
    if let Ok(sent) = usize::try_from(sent) {
        // SAFETY: the caller's promise.
        unsafe { *size = sent };
        return OK;
    }
    let is_full = matches!(Error::last_os_error().kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
    if is_full {
        // SAFETY: the caller's promise.
        unsafe { *size = 0 };
        return NO_PROGRESS;
    }
    // SAFETY: a descriptor. It may have no connection any more, which is the state that this is for.
    unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
    OK
}

/// Redirects the calls of all libraries that are loaded. Called whenever a plugin with UCX has been loaded, because it may have
/// brought another copy of UCX.
pub fn redirect(plugin: &str) {
    /// One thread at a time changes the protection of a page.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    let mut redirected = 0u32;
    // SAFETY: the function gets a pointer to the counter, while it lives.
    unsafe { libc::dl_iterate_phdr(Some(redirect_in), (&raw mut redirected).cast()) };
    let has_symbol =
        || super::library::open_plugin(plugin).is_some_and(|open| open.address_of(NAME).is_some());
    if redirected == 0 && has_symbol() {
        log!(
            Warn,
            "the transport TCP of the {plugin} plugin's UCX calls no {}: if a peer is killed while it reads memory of this process \
             over TCP, UCX may abort this process",
            NAME.to_string_lossy()
        );
    }
}

const PLT_SIZE: i64 = 2;
const SYMBOLS: i64 = 6;
const RELOCATIONS: i64 = 7;
const RELOCATIONS_SIZE: i64 = 8;
const PLT: i64 = 23;

#[cfg(target_arch = "aarch64")]
const ADDRESSES_OF_FUNCTIONS: [u64; 2] = [1025, 1026];
#[cfg(not(target_arch = "aarch64"))]
const ADDRESSES_OF_FUNCTIONS: [u64; 2] = [6, 7];

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// Called for each loaded library, none of which is unloaded meanwhile.
unsafe extern "C" fn redirect_in(
    library: *mut libc::dl_phdr_info,
    _size: usize,
    redirected: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description of a library.
    let (base, headers) = unsafe {
        let library = &*library;
        let base = library.dlpi_addr as usize;
        if library.dlpi_phdr.is_null() {
            return 0;
        }
        (base, std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum)))
    };
    let header = |kind| headers.iter().find(|header| header.p_type == kind);
    let Some(dynamic) = header(libc::PT_DYNAMIC) else { return 0 };
    let first = ptr::with_exposed_provenance::<DynamicEntry>(base + dynamic.p_vaddr as usize);
    // SAFETY: as the headers say.
    let section = unsafe { Section::new(base, first) };
    let is_read_only = |address: usize| {
        header(libc::PT_GNU_RELRO).is_some_and(|header| {
            let start = base + header.p_vaddr as usize;
            protected(start..start + header.p_memsz as usize, page_size()).contains(&address)
        })
    };
    for [table, size] in [[PLT, PLT_SIZE], [RELOCATIONS, RELOCATIONS_SIZE]] {
        let (Some(table), Some(size)) = (section.address(table), section.value(size)) else { continue };
        let first = ptr::with_exposed_provenance::<Relocation>(table);
        // SAFETY: the section describes the table.
        let relocations = unsafe { std::slice::from_raw_parts(first, size / size_of::<Relocation>()) };
        for relocation in relocations {
            if ADDRESSES_OF_FUNCTIONS.contains(&(relocation.info & 0xffff_ffff))
                && name_of(&section, relocation) == Some(NAME)
            {
                let address = base + relocation.offset as usize;
                // SAFETY: the loader stores the address of the function there, for calls of this library.
                if unsafe { replace(address, is_read_only(address)) } {
                    // SAFETY: the counter of `redirect`.
                    unsafe { *redirected.cast::<u32>() += 1 };
                }
            }
        }
    }
    0
}

/// What the loader makes read-only of a range: whole pages. Data of the library may be in the rest of the last one, which is as large as
/// the pages of this kernel, and not as those that the library was linked for.
fn protected(range: Range<usize>, page: usize) -> Range<usize> {
    range.start..range.end - range.end % page
}

fn name_of<'a>(section: &'a Section, relocation: &Relocation) -> Option<&'a CStr> {
    let symbols = ptr::with_exposed_provenance::<libc::Elf64_Sym>(section.address(SYMBOLS)?);
    // SAFETY: relocations of a loaded library name entries of its table of symbols.
    let symbol = unsafe { &*symbols.add((relocation.info >> 32) as usize) };
    section.string(symbol.st_name as usize)
}

/// # Safety
/// The address of a function with the signature of [`Send`] must be stored there.
unsafe fn replace(address: usize, is_read_only: bool) -> bool {
    let page = page_size();
    let start = ptr::with_exposed_provenance_mut::<c_void>(address - address % page);
    // SAFETY: a page of a loaded library that is read-only after relocation. The place is aligned, so it is within the page.
    let protect = |protection| unsafe { libc::mprotect(start, page, protection) } == 0;
    if is_read_only && !protect(libc::PROT_READ | libc::PROT_WRITE) {
        return false;
    }
    // SAFETY: the caller's promise. Other threads load the address when they call, so they call the one or the other.
    let place = unsafe { AtomicPtr::from_ptr(ptr::with_exposed_provenance_mut::<*mut c_void>(address)) };
    place.store(send as Send as *mut c_void, Ordering::Release);
    if is_read_only {
        protect(libc::PROT_READ);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Sends by the function that UCX calls.
    fn sent(socket: &UnixStream, data: &[u8]) -> (i8, usize) {
        let mut size = data.len();
        // SAFETY: so many bytes.
        let status = unsafe { send(socket.as_raw_fd(), data.as_ptr().cast(), &raw mut size) };
        (status, size)
    }

    /// A library that was linked for pages of 4 KiB, on a kernel with pages of 64 KiB.
    #[test]
    fn data_beside_what_the_loader_protects_stays_writable() {
        assert_eq!(protected(0x1_f000..0x2_2000, 0x1000), 0x1_f000..0x2_2000);
        assert_eq!(protected(0x1_f000..0x2_2000, 0x1_0000), 0x1_f000..0x2_0000);
        assert!(protected(0x2_1000..0x2_2000, 0x1_0000).is_empty());
    }

    #[test]
    fn a_full_socket_takes_nothing_and_a_broken_one_takes_all() {
        let (socket, peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let data = [0; 4096];
        assert_eq!(sent(&socket, &data), (OK, 4096));
        while sent(&socket, &data).0 == OK {}
        assert_eq!(sent(&socket, &data), (NO_PROGRESS, 0));
        drop(peer);
        assert_eq!(sent(&socket, &data), (OK, 4096));
        assert_eq!(sent(&socket, &data), (OK, 4096));
    }
}
