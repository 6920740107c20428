// SPDX-License-Identifier: Apache-2.0
//! Whether regions share bytes, also by different addresses or file descriptors.
//!
//! Bytes are compared by their storage, not only by their addresses: a file by its device and inode, host memory that can be
//! mapped twice by its file and offset, memory of another process by the id of its owner's control block. Some overlaps
//! cannot be detected: a file of a network file system that is mounted twice, GPU memory that the caller has mapped at two
//! addresses, memory of devices.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::proc_maps::{self, MapsEntry};
use super::{Backing, FileId, Region};
use crate::error::Result;

/// The storage of bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Store {
    /// The addresses of this process.
    Addresses,
    /// A file.
    File(FileId),
    /// A file, as in the list of mappings.
    Mapped((String, u64)),
    /// Memory with a control block, by its id.
    Shared([u8; 16]),
}

/// Some bytes of a store that a region contains.
struct Stretch {
    store: Store,
    bytes: Range<u64>,
    region: usize,
}

/// Returns two regions whose first `size` bytes overlap; the same index twice if one region contains some bytes twice.
pub fn overlap(regions: &[Arc<Region>], size: u64) -> Result<Option<(usize, usize)>> {
    let mut all = Vec::new();
    // Only the list of mappings contains the files of adopted memory. Regions that are compared with adopted memory are
    // looked up there too.
    let is_adopted = |region: &Arc<Region>| matches!(region.root(), Backing::Adopted(_));
    let by_list = regions.len() > 1 && regions.iter().any(is_adopted);
    for (index, region) in regions.iter().enumerate() {
        let of_region = stretches(region, size, by_list)?;
        all.extend(of_region.into_iter().map(|(store, bytes)| Stretch { store, bytes, region: index }));
    }
    if by_list {
        all.extend(mapped_stretches(regions, size)?);
    }
    Ok(first_overlap(all))
}

/// The files of host memory, from the list of mappings.
fn mapped_stretches(regions: &[Arc<Region>], size: u64) -> Result<Vec<Stretch>> {
    let ranges: Vec<_> = regions.iter().map(|region| span(region.address(), size)).collect();
    let mut all = Vec::new();
    for (index, mappings) in proc_maps::within(&ranges)?.into_iter().enumerate() {
        let parts = mappings.into_iter().filter_map(|mapped| part_of(mapped, &ranges[index]));
        all.extend(parts.map(|(store, bytes)| Stretch { store, bytes, region: index }));
    }
    Ok(all)
}

fn span(start: u64, size: u64) -> Range<u64> {
    start..start.saturating_add(size)
}

fn first_overlap(mut all: Vec<Stretch>) -> Option<(usize, usize)> {
    all.sort_unstable_by(|one, other| {
        (&one.store, one.bytes.start, one.region).cmp(&(&other.store, other.bytes.start, other.region))
    });
    all.windows(2)
        .find(|pair| pair[0].store == pair[1].store && pair[1].bytes.start < pair[0].bytes.end)
        .map(|pair| (pair[0].region, pair[1].region))
}

fn stretches(region: &Arc<Region>, size: u64, by_list: bool) -> Result<Vec<(Store, Range<u64>)>> {
    let span = |start| span(start, size);
    if let Some(file) = region.file() {
        return Ok(vec![(Store::File(file.id()), span(region.address()))]);
    }
    let mut found = vec![(Store::Addresses, span(region.address()))];
    let (root, offset) = Region::root_of(region);
    if let Some(id) = root.shared_id() {
        found.push((Store::Shared(id), span(offset)));
    }
    if let Some(part) = root.memory_file().filter(|_| !by_list) {
        found.push((Store::File(FileId::of(part.file)?), span(part.offset.saturating_add(offset))));
    }
    Ok(found)
}

/// The bytes of a mapping's file that are within a range of addresses.
fn part_of(mapped: MapsEntry, addresses: &Range<u64>) -> Option<(Store, Range<u64>)> {
    let pages = mapped.pages?;
    let start = addresses.start.max(mapped.addresses.start);
    let end = addresses.end.min(mapped.addresses.end);
    let first = pages.offset + (start - mapped.addresses.start);
    Some((Store::Mapped(pages.file), first..first + (end - start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(all: &[(u64, Range<u64>, usize)]) -> Option<(usize, usize)> {
        let of = |(file, bytes, region): &(u64, Range<u64>, usize)| Stretch {
            store: Store::File(FileId::numbered(*file)),
            bytes: bytes.clone(),
            region: *region,
        };
        first_overlap(all.iter().map(of).collect())
    }

    #[test]
    fn only_bytes_of_the_same_memory_overlap() {
        assert_eq!(found(&[(1, 0..10, 0), (2, 0..10, 1)]), None);
        assert_eq!(found(&[(1, 10..20, 0), (1, 0..10, 1)]), None);
        assert_eq!(found(&[(1, 9..20, 0), (2, 0..50, 2), (1, 0..10, 1)]), Some((1, 0)));
        assert_eq!(found(&[(1, 0..10, 3), (1, 4..6, 3)]), Some((3, 3)));
    }
}
