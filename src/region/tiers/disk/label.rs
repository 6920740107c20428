// SPDX-License-Identifier: Apache-2.0
//! The label of a file: a page after its data that describes the data.
//!
//! It is in the file rather than in an extended attribute or in a second file, so that it is copied and moved with the file,
//! and works on every file system. It is after the data, so that no offset depends on whether there is a label. It starts
//! at a multiple of 4096, and is read and written through the page cache, so the alignment of direct I/O does not apply.

use std::os::fd::OwnedFd;

use crate::base::retried::{pread, pwrite};
use crate::base::{Error, Result, ensure, error, fail};

/// Bytes of a label in a file.
pub const PAGE: u64 = 4096;
const LENGTH: usize = size_of::<u32>();
const MAX: usize = PAGE as usize - LENGTH;
/// In messages it is what callers know: the only label is that of a layout's file.
const WRITE: &str = "write the layout's fingerprint behind the data of the file";
const READ: &str = "read the layout's fingerprint behind the data of the file";

/// The label for a new file, and the comparison with that of an existing file.
#[derive(Clone, Debug)]
pub struct Label {
    pub bytes: Vec<u8>,
    /// How the first label, that of an existing file, differs from the second, as text; empty if they are the same. Fails if the
    /// first is none.
    pub differences: fn(&[u8], &[u8]) -> Result<Vec<String>>,
}

/// The offset of the label in a file with this size of data.
pub fn offset(size: u64) -> Result<u64> {
    let offset = size.checked_next_multiple_of(PAGE).filter(|offset| *offset <= i64::MAX as u64 - PAGE);
    offset.ok_or_else(|| error!(InvalidArgument, "{size} bytes exceed the maximum size of a file"))
}

/// Writes a label after the data of a file.
pub fn write(file: &OwnedFd, size: u64, label: &Label) -> Result<()> {
    ensure!(
        label.bytes.len() <= MAX,
        OutOfRange,
        "a fingerprint of {} bytes is too large",
        label.bytes.len()
    );
    let mut page = vec![0; PAGE as usize];
    page[..LENGTH].copy_from_slice(&(label.bytes.len() as u32).to_le_bytes());
    page[LENGTH..LENGTH + label.bytes.len()].copy_from_slice(&label.bytes);
    let (at, mut done) = (offset(size)?, 0);
    while done < page.len() {
        let written =
            pwrite(file, &page[done..], at + done as u64).map_err(|errno| Error::errno(WRITE, errno))?;
        ensure!(written > 0, Io, "{WRITE}: the kernel wrote 0 bytes");
        done += written;
    }
    Ok(())
}

/// Reads the label of a file of this length; empty if it has none.
pub fn read(file: &OwnedFd, length: u64) -> Result<Vec<u8>> {
    if length < PAGE || !length.is_multiple_of(PAGE) {
        return Ok(Vec::new());
    }
    let mut page = vec![0; PAGE as usize];
    let (at, mut done) = (length - PAGE, 0);
    while done < page.len() {
        match pread(file, &mut page[done..], at + done as u64) {
            Ok(0) => fail!(Io, "{READ}: the file was truncated"),
            Ok(got) => done += got,
            Err(errno) => return Err(Error::errno(READ, errno)),
        }
    }
    let said = u32::from_le_bytes([page[0], page[1], page[2], page[3]]) as usize;
    Ok(page[LENGTH..].get(..said).unwrap_or_default().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    #[test]
    fn a_file_with_its_label_ends_below_two_to_the_63() {
        const MAX_DATA: u64 = (1 << 63) - 2 * PAGE;
        assert_eq!(offset(MAX_DATA).unwrap(), MAX_DATA);
        for size in [MAX_DATA + 1, (1 << 63) - 1, 1 << 63, u64::MAX] {
            offset(size).err().unwrap().assert_is(Status::InvalidArgument, "maximum size of a file");
        }
    }
}
