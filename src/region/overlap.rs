// SPDX-License-Identifier: Apache-2.0
//! Whether regions have bytes in common, by their places.

use std::collections::HashMap;
use std::sync::Arc;

use once_cell::sync::OnceCell;

use super::Region;
use super::place::{AddressSpace, Place};
use crate::base::{ProcessIdentity, Result, ensure};

/// Two regions whose ranges overlap in an address space, and where each starts in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    pub regions: [usize; 2],
    pub starts: [i128; 2],
}

/// The maximum number of pairs of regions that overlap: those of interleaved parts of a layout with many regions.
const MAX_MEETINGS: usize = 1 << 20;

type Indexed = (Place, usize);

/// Returns two regions whose first `size` bytes overlap; the same index twice if one region contains some bytes twice.
pub fn overlap(regions: &[Arc<Region>], size: u64) -> Result<Option<(usize, usize)>> {
    let all = sorted(places(regions, &vec![size; regions.len()])?);
    Ok(meetings_among(&all).next().map(|found| (found.regions[0], found.regions[1])))
}

/// Returns all pairs of regions whose first bytes, a number for each region, overlap.
pub fn meetings(regions: &[Arc<Region>], sizes: &[u64]) -> Result<Vec<Meeting>> {
    all_meetings(places(regions, sizes)?)
}

/// The same for ranges of addresses in one process, each with its start and size.
pub fn meetings_of_ranges(ranges: &[(u64, u64)]) -> Result<Vec<Meeting>> {
    let place = |(start, size): &(u64, u64)| Place::new(AddressSpace::Process, *start, *size);
    all_meetings(ranges.iter().map(place).zip(0..).collect())
}

fn places(regions: &[Arc<Region>], sizes: &[u64]) -> Result<Vec<Indexed>> {
    ensure_one_object_size(regions)?;
    let each = regions.iter().zip(sizes).zip(0..).flat_map(|((region, size), index)| {
        let first = region.places().into_iter().filter_map(|place| place.part(0, *size));
        first.map(move |place| (place, index))
    });
    Ok(each.collect())
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

fn sorted(mut all: Vec<Indexed>) -> Vec<Indexed> {
    let key = |(place, region): &Indexed| (place.start, *region);
    all.sort_unstable_by(|one, other| one.0.space.cmp(&other.0.space).then(key(one).cmp(&key(other))));
    all
}

/// The pairs of sorted places that have bytes in common.
fn meetings_among(all: &[Indexed]) -> impl Iterator<Item = Meeting> {
    all.iter().zip(1..).flat_map(|((one, region), next)| {
        all[next..].iter().take_while(|(other, _)| one.reaches(other)).map(|(other, other_region)| Meeting {
            regions: [*region, *other_region],
            starts: [one.start_of_region(), other.start_of_region()],
        })
    })
}

fn all_meetings(all: Vec<Indexed>) -> Result<Vec<Meeting>> {
    let all = sorted(all);
    let found: Vec<_> = meetings_among(&all).take(MAX_MEETINGS + 1).collect();
    ensure!(
        found.len() <= MAX_MEETINGS,
        InvalidArgument,
        "more than {MAX_MEETINGS} pairs of regions overlap; use larger regions, with the order of their axes"
    );
    Ok(found)
}

/// The places of the regions of a layout.
#[derive(Debug)]
pub struct Places {
    addresses: Vec<u64>,
    /// Each with the index of its region, in order of the regions.
    each: Vec<(Place, u32)>,
    /// In order, and none touches another.
    joined: Vec<Place>,
}

impl Places {
    pub fn from_regions(regions: &[Arc<Region>]) -> Self {
        let each = regions.iter().zip(0u32..).flat_map(|(region, index)| {
            let places = region.places().into_iter();
            places.map(move |place| (place, index))
        });
        Self::new(regions.iter().map(|region| region.address()).collect(), each.collect())
    }

    /// That of regions of a peer, each with its address there and its size.
    pub fn of_peer(process: &ProcessIdentity, regions: impl Iterator<Item = (u64, u64)>) -> Self {
        let process = Arc::new(process.clone());
        let place =
            |(address, size)| (address, Place::new(AddressSpace::Peer(process.clone()), address, size));
        let (addresses, places): (Vec<_>, Vec<_>) = regions.map(place).unzip();
        Self::new(addresses, places.into_iter().zip(0..).collect())
    }

    /// That of all memory of this process as one region, by addresses alone.
    pub fn of_addresses() -> &'static Self {
        static ALL: OnceCell<Places> = OnceCell::new();
        ALL.get_or_init(|| Self::new(vec![0], vec![(Place::new(AddressSpace::Process, 0, u64::MAX), 0)]))
    }

    fn new(addresses: Vec<u64>, each: Vec<(Place, u32)>) -> Self {
        let joined = joined(each.iter().map(|(place, _)| place.clone()).collect());
        Self { addresses, each, joined }
    }

    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    /// Each place with the index of its region, in order of the regions.
    pub fn each(&self) -> &[(Place, u32)] {
        &self.each
    }

    /// The address spaces of the places, each once, in order.
    pub fn spaces(&self) -> Vec<&AddressSpace> {
        let mut spaces: Vec<_> = self.joined.iter().map(|place| &place.space).collect();
        spaces.dedup();
        spaces
    }

    /// Whether some are in storage: in a file, objects or block storage.
    pub fn are_stored(&self) -> bool {
        self.each.iter().any(|(place, _)| {
            matches!(
                place.space,
                AddressSpace::File(_) | AddressSpace::Objects(..) | AddressSpace::BlockDevice(_)
            )
        })
    }

    /// Whether they have bytes in common with others. Places that are side by side are skipped at once.
    pub fn meet(&self, other: &Self) -> bool {
        let (mut mine, mut theirs) = (&self.joined[..], &other.joined[..]);
        while let (Some(one), Some(another)) = (mine.first(), theirs.first()) {
            if is_before(one, another) {
                mine = &mine[mine.partition_point(|place| is_before(place, another))..];
            } else if is_before(another, one) {
                theirs = &theirs[theirs.partition_point(|place| is_before(place, one))..];
            } else {
                return true;
            }
        }
        false
    }
}

/// Whether a place ends before another one begins.
fn is_before(one: &Place, other: &Place) -> bool {
    (&one.space, one.end) <= (&other.space, other.start)
}

/// The same bytes in order, without places that touch each other.
fn joined(mut places: Vec<Place>) -> Vec<Place> {
    places.sort_unstable();
    places.dedup_by(|next, last| {
        let continues = next.space == last.space && next.start <= last.end;
        if continues {
            last.end = last.end.max(next.end);
        }
        continues
    });
    places
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::region::FileId;

    fn file(inode: u64) -> AddressSpace {
        AddressSpace::File(FileId::numbered(inode))
    }

    fn found(all: &[(u64, std::ops::Range<u64>, usize)]) -> Option<[usize; 2]> {
        let of = |(inode, bytes, region): &(u64, std::ops::Range<u64>, usize)| {
            (Place::new(file(*inode), bytes.start, bytes.end - bytes.start), *region)
        };
        meetings_among(&sorted(all.iter().map(of).collect())).next().map(|found| found.regions)
    }

    #[test]
    fn only_bytes_of_the_same_memory_overlap() {
        assert_eq!(found(&[(1, 0..10, 0), (2, 0..10, 1)]), None);
        assert_eq!(found(&[(1, 10..20, 0), (1, 0..10, 1)]), None);
        assert_eq!(found(&[(1, 9..20, 0), (2, 0..50, 2), (1, 0..10, 1)]), Some([1, 0]));
        assert_eq!(found(&[(1, 0..10, 3), (1, 4..6, 3)]), Some([3, 3]));
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

    fn places() -> impl Strategy<Value = Places> {
        let spaces = [AddressSpace::Process, file(1), AddressSpace::Shared([1; 16])];
        let place = (prop::sample::select(spaces.to_vec()), 0u64..60, 1u64..9);
        let of = |(space, start, size)| Place::new(space, start, size);
        prop::collection::vec(place.prop_map(of), 0..12).prop_map(|all| Places {
            addresses: Vec::new(),
            each: Vec::new(),
            joined: joined(all),
        })
    }

    proptest! {
        #[test]
        fn places_meet_if_two_of_them_have_a_byte_in_common(mine in places(), theirs in places()) {
            let bytes = |places: &Places| -> BTreeSet<(AddressSpace, u64)> {
                let of = |place: &Place| {
                    let space = place.space.clone();
                    (place.start..place.end).map(move |at| (space.clone(), at))
                };
                places.joined.iter().flat_map(of).collect()
            };
            prop_assert_eq!(mine.meet(&theirs), !bytes(&mine).is_disjoint(&bytes(&theirs)));
            prop_assert!(mine.joined.windows(2).all(|pair| is_before(&pair[0], &pair[1])));
        }
    }

    #[test]
    fn regions_that_follow_each_other_are_one_place() {
        let place = |start, size| Place::new(AddressSpace::Process, start, size);
        assert_eq!(joined(vec![place(32, 16), place(0, 16), place(16, 16)]), [place(0, 48)]);
    }
}
