// SPDX-License-Identifier: Apache-2.0
//! The label of a file: what its bytes mean, in a page of its own behind them.
//!
//! It is in the file rather than in an extended attribute or in a second file: it goes along when the file
//! is copied or moved, and every file system can hold it. It is behind the bytes, so that no offset depends
//! on whether there is one. It begins at a multiple of 4096 and is read and written through the page cache:
//! the alignment of direct I/O, which is of the bytes before it, does not matter to it.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;

use rustix::io::{pread, pwrite};

use crate::error::{Error, Result, Status, ensure, fail};

/// Bytes of a label in a file.
pub const PAGE: u64 = 4096;
const LENGTH: usize = size_of::<u32>();
const MOST: usize = PAGE as usize - LENGTH;

/// What a file is to be labelled with, and how another file's label is judged.
#[derive(Clone, Debug)]
pub struct Label {
    /// The bytes of it.
    pub bytes: Vec<u8>,
    /// Fails with the reason why an existing file with the first label cannot be used as one with the
    /// second. Without a label the first is empty.
    pub check: fn(&[u8], &[u8]) -> Result<()>,
}

/// Where the label of a file with so many bytes is.
pub fn offset(size: u64) -> Result<u64> {
    let offset = size.checked_next_multiple_of(PAGE).filter(|offset| offset.checked_add(PAGE).is_some());
    offset.ok_or_else(|| {
        Error::new(Status::InvalidArgument, format!("{size} bytes are more than a file can have"))
    })
}

/// Writes a label behind the bytes of a file.
pub fn write(file: &OwnedFd, size: u64, label: &Label) -> Result<()> {
    ensure!(label.bytes.len() <= MOST, OutOfRange, "a label of {} bytes is too large", label.bytes.len());
    let mut page = vec![0; PAGE as usize];
    page[..LENGTH].copy_from_slice(&(label.bytes.len() as u32).to_le_bytes());
    page[LENGTH..LENGTH + label.bytes.len()].copy_from_slice(&label.bytes);
    let (at, mut done) = (offset(size)?, 0);
    while done < page.len() {
        let written = pwrite(file, &page[done..], at + done as u64)
            .map_err(|errno| Error::errno("write a file's label", errno))?;
        ensure!(written > 0, Io, "write a file's label: the kernel writes nothing");
        done += written;
    }
    Ok(())
}

/// The label of a file of this length; empty where there is none.
pub fn read(file: &OwnedFd, length: u64) -> Result<Vec<u8>> {
    if length < PAGE || !length.is_multiple_of(PAGE) {
        return Ok(Vec::new());
    }
    let mut page = vec![0; PAGE as usize];
    let (at, mut done) = (length - PAGE, 0);
    while done < page.len() {
        match pread(file, &mut page[done..], at + done as u64) {
            Ok(0) => fail!(Io, "read a file's label: the file was cut short"),
            Ok(got) => done += got,
            Err(errno) => return Err(Error::errno("read a file's label", errno)),
        }
    }
    let said = u32::from_le_bytes([page[0], page[1], page[2], page[3]]) as usize;
    Ok(page[LENGTH..].get(..said).unwrap_or_default().to_vec())
}
