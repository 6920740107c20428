// SPDX-License-Identifier: Apache-2.0
//! The mappings of this process in /proc: their protection and files.
//!
//! Reading the list costs about a microsecond per mapping. So it is read when memory is adopted or a layout is built, and
//! never for a transfer.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;

use rustix::fs::FileType;

use crate::base::process::explain_proc;
use crate::base::{Error, Result, retried};

/// The list of the calling thread, because that of the process is empty after the main thread has ended.
const LIST: &str = "/proc/thread-self/maps";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsEntry {
    pub addresses: Range<u64>,
    /// It may be read.
    pub readable: bool,
    /// It may be written.
    pub writable: bool,
    /// The file and the offset, if other mappings of the same pages are possible.
    pub pages: Option<SharedPages>,
}

/// A part of a file, or of anonymous memory that is shared, which the kernel lists like a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPages {
    /// The device and the inode of the list, which differ from those of stat on some file systems.
    pub file: (String, u64),
    /// The offset of the mapping in the file.
    pub offset: u64,
}

/// The mappings that each of some ranges of addresses overlaps, in order. The list is read once for all.
pub fn within(ranges: &[Range<u64>]) -> Result<Vec<Vec<MapsEntry>>> {
    let unreadable = |error| explain_proc(Error::io(format!("find out from {LIST} what is mapped"), &error));
    let list = BufReader::new(std::fs::File::open(LIST).map_err(unreadable)?);
    let last = ranges.iter().map(|range| range.end).max().unwrap_or(0);
    let mut found = vec![Vec::new(); ranges.len()];
    for line in list.split(b'\n') {
        let line = line.map_err(unreadable)?;
        let line = String::from_utf8_lossy(&line);
        let Some(addresses) = addresses(&line) else { continue };
        if addresses.start >= last {
            break;
        }
        let overlaps = |range: &Range<u64>| addresses.start < range.end && addresses.end > range.start;
        if !ranges.iter().any(overlaps) {
            continue;
        }
        let Some(mapped) = parse(&line) else { continue };
        for (range, found) in ranges.iter().zip(&mut found) {
            if overlaps(range) {
                found.push(mapped.clone());
            }
        }
    }
    Ok(found)
}

/// Parses the start of the first line of a mapping, here or in smaps: "start-end ".
pub(super) fn addresses(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some(hexadecimal(start)?..hexadecimal(end)?)
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Parses a line: "start-end rwxp offset device inode path".
fn parse(line: &str) -> Option<MapsEntry> {
    let mut fields = line.splitn(6, ' ');
    let addresses = addresses(line)?;
    fields.next()?;
    let protection = fields.next()?.as_bytes();
    let offset = hexadecimal(fields.next()?)?;
    let device = fields.next()?.to_string();
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_start();
    let is_shared = protection.get(3) == Some(&b's') && has_pages(path);
    Some(MapsEntry {
        addresses,
        readable: protection.first() == Some(&b'r'),
        writable: protection.get(1) == Some(&b'w'),
        pages: is_shared.then_some(SharedPages { file: (device, inode), offset }),
    })
}

/// Whether equal offsets mean equal bytes. That is true for files, including memory files, but not for devices, whose drivers
/// interpret offsets, and not for anonymous inodes, which all have the same number.
fn has_pages(path: &str) -> bool {
    let is_device = || {
        let kind = retried::stat(Path::new(path)).map(|stat| FileType::from_raw_mode(stat.st_mode));
        matches!(kind, Ok(FileType::CharacterDevice | FileType::BlockDevice))
    };
    path.starts_with('/') && !(path.starts_with("/dev/") && is_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_the_kernel_writes_it() {
        let shared = parse("7f10-7f20 rw-s 00001000 00:01 4242       /memfd:kv cache (deleted)").unwrap();
        assert_eq!(shared.addresses, 0x7f10..0x7f20);
        assert!(shared.readable && shared.writable);
        assert_eq!(shared.pages, Some(SharedPages { file: ("00:01".into(), 4242), offset: 0x1000 }));
        let private = parse("7f10-7f20 r--p 00000000 fe:00 4242 /usr/lib/libc.so.6").unwrap();
        assert!(private.readable && !private.writable && private.pages.is_none());
        let guard = parse("7f10-7f20 ---p 00000000 00:00 0 ").unwrap();
        assert!(!guard.readable && !guard.writable && guard.pages.is_none());
        for other in ["/dev/null", "anon_inode:[vfio-device]", ""] {
            let line = format!("7f10-7f20 rw-s 00000000 00:0e 7 {other}");
            assert_eq!(parse(&line).unwrap().pages, None, "{other}");
        }
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn a_variable_is_within_a_mapping() {
        let variable = 0u8;
        let address = &raw const variable as u64;
        let found = within(&[address..address + 1, 0..1]).unwrap();
        assert_eq!((found[0].len(), found[1].len()), (1, 0));
        assert!(found[0][0].writable && found[0][0].addresses.contains(&address));
    }
}
