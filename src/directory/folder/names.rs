// SPDX-License-Identifier: Apache-2.0
//! The names of the files of a folder.

use crate::base::{Result, random};
use crate::directory::entry::{decode, encode};

/// The end of the file name of an entry.
const SUFFIX: &str = ".agent";
/// The end of the file name of an entry that is being written or removed.
const UNFINISHED: &str = ".new";

pub fn file_name(name: &str) -> String {
    format!("{}{SUFFIX}", encode(name))
}

/// The name of the entry in a file; `None` for any other file.
pub fn name_of(file_name: &[u8]) -> Option<String> {
    decode(std::str::from_utf8(file_name).ok()?.strip_suffix(SUFFIX)?)
}

/// A name for a file that is not an entry, which no other process uses.
pub fn unfinished() -> Result<String> {
    Ok(format!(".{:016x}{UNFINISHED}", u64::from_ne_bytes(random()?)))
}

pub fn is_unfinished(name: &[u8]) -> bool {
    let hex = name.strip_prefix(b".").and_then(|name| name.strip_suffix(UNFINISHED.as_bytes()));
    hex.is_some_and(|hex| hex.len() == 16 && hex.iter().all(u8::is_ascii_hexdigit))
}
