// SPDX-License-Identifier: Apache-2.0
//! Whether regions share bytes, also by different addresses or file descriptors.
//!
//! Bytes are compared by their storage, not only by their addresses: a file by its device and inode, host memory that can be
//! mapped twice by its file and offset, memory of another process by the id of its owner's control block. Some overlaps
//! cannot be detected: a file of a network file system that is mounted twice, GPU memory that the caller has mapped at two
//! addresses, memory of devices.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::proc_maps::{self, MapsEntry};
use super::{Backing, FileId, Region};
use crate::base::error::{Result, ensure};

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
    /// Objects, by the prefix of their keys.
    Objects(String),
    /// A block device, by its number.
    Block(u64),
}

/// Some bytes of a store that a region contains.
struct StoredSpan {
    store: Store,
    bytes: Range<u64>,
    region: usize,
    /// Where the region starts in the store; before the store, if only later bytes of the region are in it.
    start: i128,
}

/// Two regions whose ranges overlap in a store, and where each starts in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// Which of the regions.
    pub regions: [usize; 2],
    /// Their starts.
    pub starts: [i128; 2],
}

/// The maximum number of pairs of regions that overlap: those of interleaved parts of a layout with many regions.
const MAX_MEETINGS: usize = 1 << 20;

/// Returns two regions whose first `size` bytes overlap; the same index twice if one region contains some bytes twice.
pub fn overlap(regions: &[Arc<Region>], size: u64) -> Result<Option<(usize, usize)>> {
    Ok(first_overlap(all_spans(regions, &vec![size; regions.len()])?))
}

/// Returns all pairs of regions whose first bytes, a number for each region, overlap.
pub fn meetings(regions: &[Arc<Region>], sizes: &[u64]) -> Result<Vec<Meeting>> {
    all_meetings(all_spans(regions, sizes)?)
}

/// The same for ranges of addresses in one process, each with its start and size.
pub fn meetings_of_ranges(ranges: &[(u64, u64)]) -> Result<Vec<Meeting>> {
    let span = |(region, (start, size)): (usize, &(u64, u64))| StoredSpan {
        store: Store::Addresses,
        bytes: span(*start, *size),
        region,
        start: i128::from(*start),
    };
    all_meetings(ranges.iter().enumerate().map(span).collect())
}

fn all_spans(regions: &[Arc<Region>], sizes: &[u64]) -> Result<Vec<StoredSpan>> {
    ensure_one_object_size(regions)?;
    let mut all = Vec::new();
    // Only the list of mappings contains the files of adopted memory. Regions that are compared with adopted memory are
    // looked up there too.
    let is_adopted = |region: &Arc<Region>| matches!(region.root(), Backing::Adopted(_));
    let by_list = regions.len() > 1 && regions.iter().any(is_adopted);
    for (index, (region, size)) in regions.iter().zip(sizes).enumerate() {
        let of_region = stored_spans(region, *size, by_list)?;
        all.extend(of_region.into_iter().map(|(store, bytes)| {
            let start = i128::from(bytes.start);
            StoredSpan { store, bytes, region: index, start }
        }));
    }
    if by_list {
        all.extend(mapped_spans(regions, sizes)?);
    }
    Ok(all)
}

/// The addresses of two regions of objects can be compared only if one object has the same addresses in both.
fn ensure_one_object_size(regions: &[Arc<Region>]) -> Result<()> {
    let mut known: HashMap<&str, (usize, u64)> = HashMap::new();
    for (index, objects) in
        regions.iter().enumerate().filter_map(|(at, region)| Some((at, region.objects()?)))
    {
        let (prefix, size) = (objects.prefix(), objects.object_size());
        let (first, first_size) = *known.entry(prefix).or_insert((index, size));
        ensure!(
            size == first_size,
            InvalidArgument,
            "regions {first} and {index} have objects of {first_size} and {size} bytes with the same keys, which begin with \
             '{prefix}'; give each its own prefix"
        );
    }
    Ok(())
}

/// The files of host memory, from the list of mappings.
fn mapped_spans(regions: &[Arc<Region>], sizes: &[u64]) -> Result<Vec<StoredSpan>> {
    let ranges: Vec<_> =
        regions.iter().zip(sizes).map(|(region, size)| span(region.address(), *size)).collect();
    let mut all = Vec::new();
    for (index, mappings) in proc_maps::within(&ranges)?.into_iter().enumerate() {
        let parts = mappings.into_iter().filter_map(|mapped| part_of(mapped, &ranges[index]));
        all.extend(parts.map(|(store, bytes, skipped)| {
            let start = i128::from(bytes.start) - i128::from(skipped);
            StoredSpan { store, bytes, region: index, start }
        }));
    }
    Ok(all)
}

/// By address in their storage.
fn sort(all: &mut [StoredSpan]) {
    all.sort_unstable_by(|one, other| {
        (&one.store, one.bytes.start, one.region).cmp(&(&other.store, other.bytes.start, other.region))
    });
}

fn all_meetings(mut all: Vec<StoredSpan>) -> Result<Vec<Meeting>> {
    sort(&mut all);
    let mut found = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let later = all[index + 1..].iter();
        for other in later.take_while(|other| other.store == one.store && other.bytes.start < one.bytes.end) {
            ensure!(
                found.len() < MAX_MEETINGS,
                InvalidArgument,
                "more than {MAX_MEETINGS} pairs of regions overlap; use larger regions, with the order of their axes"
            );
            found.push(Meeting { regions: [one.region, other.region], starts: [one.start, other.start] });
        }
    }
    Ok(found)
}

fn span(start: u64, size: u64) -> Range<u64> {
    start..start.saturating_add(size)
}

fn first_overlap(mut all: Vec<StoredSpan>) -> Option<(usize, usize)> {
    sort(&mut all);
    all.windows(2)
        .find(|pair| pair[0].store == pair[1].store && pair[1].bytes.start < pair[0].bytes.end)
        .map(|pair| (pair[0].region, pair[1].region))
}

fn stored_spans(region: &Arc<Region>, size: u64, by_list: bool) -> Result<Vec<(Store, Range<u64>)>> {
    let span = |start| span(start, size);
    let storage = match region.root() {
        Backing::Disk(file) => Some(Store::File(file.id())),
        Backing::Objects(objects) => Some(Store::Objects(objects.prefix().to_string())),
        Backing::Block(storage) => Some(Store::Block(storage.device_id())),
        _ => None,
    };
    if let Some(store) = storage {
        return Ok(vec![(store, span(region.address()))]);
    }
    let mut found = vec![(Store::Addresses, span(region.address()))];
    let (root, offset) = Region::root_of(region);
    if let Some(id) = root.shared_id() {
        found.push((Store::Shared(id), span(offset)));
    }
    if let Some(part) = root.memory_file().filter(|_| !by_list) {
        found.push((Store::File(FileId::from_fd(part.file)?), span(part.offset.saturating_add(offset))));
    }
    Ok(found)
}

/// The bytes of a mapping's file that are within a range of addresses, and their distance from the start of the range.
fn part_of(mapped: MapsEntry, addresses: &Range<u64>) -> Option<(Store, Range<u64>, u64)> {
    let pages = mapped.pages?;
    let start = addresses.start.max(mapped.addresses.start);
    let end = addresses.end.min(mapped.addresses.end);
    let first = pages.offset + (start - mapped.addresses.start);
    Some((Store::Mapped(pages.file), first..first + (end - start), start - addresses.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(all: &[(u64, Range<u64>, usize)]) -> Option<(usize, usize)> {
        let of = |(file, bytes, region): &(u64, Range<u64>, usize)| StoredSpan {
            store: Store::File(FileId::numbered(*file)),
            bytes: bytes.clone(),
            region: *region,
            start: i128::from(bytes.start),
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

    #[test]
    fn all_pairs_that_overlap_are_found() {
        let found = meetings_of_ranges(&[(100, 50), (0, 100), (120, 10), (0, 500), (600, 1)]).unwrap();
        let meeting = |regions, starts| Meeting { regions, starts };
        let expected = [
            meeting([1, 3], [0, 0]),
            meeting([3, 0], [0, 100]),
            meeting([3, 2], [0, 120]),
            meeting([0, 2], [100, 120]),
        ];
        assert_eq!(found.len(), expected.len());
        let swapped = |m: &Meeting| meeting([m.regions[1], m.regions[0]], [m.starts[1], m.starts[0]]);
        for each in &expected {
            assert!(found.contains(each) || found.contains(&swapped(each)), "{each:?}");
        }
    }
}
