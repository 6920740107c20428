// SPDX-License-Identifier: Apache-2.0
//! What a store is and contains, as text for people. Reads the files of a store that may be in use, and changes nothing.

use std::path::Path;

use super::files::{Files, StoreFile, StoreFolder, stores_in};
use super::index::Index;
use super::journal::Journal;
use super::namespace_list::NamespaceList;
use super::store_header::Header;
use crate::base::one_line::one_line;
use crate::base::{Count, Error, Result, error};
use crate::layout::fingerprint;

/// Stores in a folder that an error names.
const SHOWN: usize = 8;

pub fn describe(path: &Path) -> Result<String> {
    let files = StoreFolder::read_only(path)?;
    let named = |error: Error| error.context(format!("read the store {}", path.display()));
    let header = Header::read(&files).map_err(named)?.ok_or_else(|| no_store(path))?;
    let mut lines = vec![
        ("store", path.display().to_string()),
        ("writer", files.writer()?.unwrap_or_else(|| "none".into())),
    ];
    lines.extend(header.values.iter().map(|(name, value)| ("identity", format!("{name} is {value}"))));
    lines.extend([
        ("layout", fingerprint::described(&header.layout)?),
        ("created", age(&files, StoreFile::Header)?),
        ("changed", age(&files, StoreFile::Journal)?),
    ]);
    match changed_blocks(&files, &header)? {
        None => lines.extend(content(&files, &header).map_err(named)?),
        // Memory for the slots is allocated only if the file has as many.
        Some(damage) => lines.push(("damage", damage)),
    }
    Ok(lines.into_iter().map(|(name, value)| format!("{name:<11}{}\n", one_line(value))).collect())
}

/// The error for a folder without a store, such as that of an engine with a store per worker.
fn no_store(path: &Path) -> Error {
    let names = stores_in(path, SHOWN);
    error!(NotFound, "the folder {} contains no store", path.display())
        .with_advice((!names.is_empty()).then(|| format!("folders in it do, such as {}", names.join(", "))))
}

/// What the index says of the slots.
fn content(files: &StoreFolder, header: &Header) -> Result<Vec<(&'static str, String)>> {
    let (mut index, (namespaces, damage)) =
        (Index::to_replay(header.slots)?, NamespaceList::recover(files, header)?);
    namespaces.iter().for_each(|each| index.set_quota(each.number, each.slots));
    let read = Journal::read(files, header.id, |record| index.replay(record))?;
    let counts = index.counts();
    let percent = counts.stored * 100 / counts.slots.max(1);
    let (slots, records) = (Count(counts.retired, "slot"), Count(read.damaged, "record"));
    let mut lines =
        vec![("occupancy", format!("{} of {}, {percent} %", counts.stored, Count(counts.slots, "slot")))];
    lines.extend(namespaces.iter().map(|each| {
        let (stored, slots) = (index.counts_of(each.number).stored, Count(each.slots, "slot"));
        let encrypted = if each.encryption.is_some() { ", encrypted" } else { "" };
        ("namespace", format!("{}: {stored} of {slots}{encrypted}", each.name))
    }));
    let unlisted = Count(index.pools.used_by_unlisted(), "block");
    lines.extend(
        (unlisted.0 > 0).then(|| {
            ("namespace", format!("{unlisted} of namespaces that the list lacks, which are misses"))
        }),
    );
    lines.extend(
        damage.map(|error| ("damage", format!("the file {}: {error}", StoreFile::Namespaces.name()))),
    );
    lines.extend([
        ("index", Count(read.journal.records(), "record").to_string()),
        ("damage", format!("{slots}, {records} of the index")),
    ]);
    Ok(lines)
}

/// How the file of blocks differs from what the store has created. Allocates nothing for its slots.
pub fn changed_blocks(files: &StoreFolder, header: &Header) -> Result<Option<String>> {
    let (size, needed) =
        (files.size(StoreFile::Blocks)?.unwrap_or(0), fingerprint::file_size(&header.layout)?);
    let text = || format!("the file {} has {size} bytes, and had {needed}", StoreFile::Blocks.name());
    Ok((size != needed).then(text))
}

/// How long ago a file was changed. A clock that was set back shows 0.
fn age(files: &StoreFolder, file: StoreFile) -> Result<String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    let changed = files.changed(file)?.unwrap_or(0).max(0) as u64;
    let seconds = now.saturating_sub(changed);
    Ok(match seconds {
        0..120 => format!("{} ago", Count(seconds, "second")),
        120..7200 => format!("{} minutes ago", seconds / 60),
        7200..172_800 => format!("{} hours ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86400),
    })
}
