// SPDX-License-Identifier: Apache-2.0
//! First-fit allocation of offsets. Each free range has the work that may still use its memory.

use std::collections::BTreeMap;

/// The free and the used ranges of some memory, by their offsets. Adjacent free ones without work are one.
pub struct Ranges<W> {
    free: BTreeMap<u64, Free<W>>,
    used: BTreeMap<u64, u64>,
}

struct Free<W> {
    size: u64,
    /// The work that its last user has submitted; `None` if it has ended.
    work: Option<W>,
}

/// A range that was taken, and the work to wait for before it is used.
pub struct Taken<W> {
    pub offset: u64,
    pub size: u64,
    pub work: Option<W>,
}

impl<W: Clone> Ranges<W> {
    pub fn new(size: u64) -> Self {
        Self { free: BTreeMap::from([(0, Free { size, work: None })]), used: BTreeMap::new() }
    }

    /// Takes the first free range that is large enough, and whose work is none or allowed.
    pub fn take(&mut self, size: u64, is_allowed: impl Fn(&W) -> bool) -> Option<Taken<W>> {
        let fits = |free: &Free<W>| free.size >= size && free.work.as_ref().is_none_or(&is_allowed);
        let offset = self.free.iter().find(|(_, free)| fits(free)).map(|(offset, _)| *offset)?;
        let Free { size: found, work } = self.free.remove(&offset)?;
        if found > size {
            self.free.insert(offset + size, Free { size: found - size, work: work.clone() });
        }
        self.used.insert(offset, size);
        Some(Taken { offset, size, work })
    }

    /// Makes a used range free. Returns false if no used range starts there.
    pub fn give(&mut self, offset: u64, work: Option<W>) -> bool {
        let Some(size) = self.used.remove(&offset) else { return false };
        self.add(offset, Free { size, work });
        true
    }

    /// Joins it with neighbours if none of them has work.
    fn add(&mut self, mut offset: u64, mut free: Free<W>) {
        if free.work.is_none() {
            let has_none = |other: &&Free<W>| other.work.is_none();
            if let Some(after) = self.free.get(&(offset + free.size)).filter(has_none).map(|after| after.size)
            {
                self.free.remove(&(offset + free.size));
                free.size += after;
            }
            let before = self.free.range(..offset).next_back().filter(|(_, before)| before.work.is_none());
            if let Some((start, size)) = before.map(|(start, before)| (*start, before.size))
                && start + size == offset
            {
                (offset, free.size) = (start, size + free.size);
            }
        }
        self.free.insert(offset, free);
    }

    /// Forgets work that has ended, and joins neighbours without work.
    pub fn end_work(&mut self, has_ended: impl Fn(&W) -> bool) {
        for (offset, mut free) in std::mem::take(&mut self.free) {
            free.work = free.work.filter(|work| !has_ended(work));
            self.add(offset, free);
        }
    }

    /// Offset and size of each used range.
    pub fn used(&self) -> impl Iterator<Item = (u64, u64)> {
        self.used.iter().map(|(offset, size)| (*offset, *size))
    }

    /// Offset, size and work of each free range that has work.
    pub fn working(&self) -> impl Iterator<Item = (u64, u64, &W)> {
        self.free.iter().filter_map(|(offset, free)| Some((*offset, free.size, free.work.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: fn(&u32) -> bool = |_| true;
    const NONE: fn(&u32) -> bool = |_| false;

    fn offset(taken: Option<Taken<u32>>) -> Option<(u64, Option<u32>)> {
        taken.map(|taken| (taken.offset, taken.work))
    }

    #[test]
    fn the_lowest_range_that_fits_is_taken_with_its_work() {
        let mut ranges = Ranges::new(100);
        assert_eq!(offset(ranges.take(40, ALL)), Some((0, None)));
        assert_eq!(offset(ranges.take(40, ALL)), Some((40, None)));
        assert_eq!(offset(ranges.take(40, ALL)), None);
        assert!(ranges.give(0, Some(7)) && !ranges.give(0, None) && !ranges.give(41, None));
        assert_eq!(offset(ranges.take(30, NONE)), None);
        assert_eq!(offset(ranges.take(20, NONE)), Some((80, None)));
        assert_eq!(offset(ranges.take(30, ALL)), Some((0, Some(7))));
        assert_eq!(offset(ranges.take(10, ALL)), Some((30, Some(7))));
        assert_eq!(ranges.used().collect::<Vec<_>>(), [(0, 30), (30, 10), (40, 40), (80, 20)]);
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_those_that_were_given_back_are_free_again(
            sizes in prop::collection::vec(1u64..300, 1..60),
        ) {
            let mut ranges = Ranges::new(4096);
            for (step, size) in sizes.into_iter().enumerate() {
                match offset(ranges.take(size, NONE)) {
                    Some((offset, _)) => prop_assert!(offset + size <= 4096),
                    None => prop_assert!(ranges.used().next().is_some()),
                }
                let used: Vec<_> = ranges.used().collect();
                prop_assert!(used.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
                if step % 3 == 2 && !used.is_empty() {
                    prop_assert!(ranges.give(used[step % used.len()].0, None));
                }
            }
            let used: Vec<_> = ranges.used().collect();
            prop_assert!(used.into_iter().all(|(offset, _)| ranges.give(offset, None)));
            prop_assert_eq!(offset(ranges.take(4096, NONE)), Some((0, None)));
        }
    }

    #[test]
    fn neighbours_join_when_their_work_has_ended() {
        let mut ranges = Ranges::new(90);
        for _ in 0..3 {
            assert!(ranges.take(30, ALL).is_some());
        }
        for (at, work) in [(0, 1), (30, 2), (60, 3)] {
            assert!(ranges.give(at, Some(work)));
        }
        ranges.end_work(|work| *work != 2);
        assert_eq!(
            ranges.working().map(|(at, size, work)| (at, size, *work)).collect::<Vec<_>>(),
            [(30, 30, 2)]
        );
        assert_eq!(offset(ranges.take(60, ALL)), None);
        ranges.end_work(ALL);
        assert_eq!(offset(ranges.take(90, NONE)), Some((0, None)));
        assert_eq!(ranges.working().count(), 0);
    }
}
