// SPDX-License-Identifier: Apache-2.0
//! The set of extents that some spans touch. Pure.
//!
//! A region of another process may claim 2^24 extents, and a layout 2^16 parts of it. The set needs memory for the extents
//! that are touched, not for those that are claimed.

use std::ops::Range;

/// Flags of a page. Most regions have fewer extents.
const PAGE: usize = 1 << 10;

#[derive(Default)]
pub struct ExtentSet {
    /// A flag per extent of a page, set without a branch because there may be tens of thousands of spans. `None` if no
    /// extent of the page is touched.
    pages: Vec<Option<Box<[bool; PAGE]>>>,
}

impl ExtentSet {
    pub fn add(&mut self, extents: Range<usize>) {
        let mut next = extents.start;
        while next < extents.end {
            let (page, first) = (next / PAGE, next % PAGE);
            let count = (extents.end - next).min(PAGE - first);
            self.page(page)[first..first + count].fill(true);
            next += count;
        }
    }

    /// The extents in ascending order.
    pub fn to_vec(&self) -> Vec<usize> {
        let pages = self.pages.iter().enumerate();
        let touched = pages.filter_map(|(index, page)| Some((index * PAGE, page.as_ref()?)));
        let flags = touched.flat_map(|(start, page)| {
            page.iter().enumerate().map(move |(index, is_set)| (start + index, *is_set))
        });
        flags.filter(|(_, is_set)| *is_set).map(|(extent, _)| extent).collect()
    }

    fn page(&mut self, index: usize) -> &mut [bool; PAGE] {
        if index >= self.pages.len() {
            self.pages.resize_with(index + 1, || None);
        }
        self.pages[index].get_or_insert_with(|| Box::new([false; PAGE]))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_extent_of_the_largest_region_takes_little_memory() {
        let mut set = ExtentSet::default();
        set.add((1 << 24) - 1..1 << 24);
        assert_eq!(set.to_vec(), [(1 << 24) - 1]);
        assert_eq!(set.pages.len(), (1 << 24) / PAGE);
        assert_eq!(set.pages.iter().flatten().count(), 1);
    }

    proptest! {
        #[test]
        fn it_has_what_was_added_in_order(
            ranges in prop::collection::vec((0usize..5000, 0usize..2500), 0..20),
        ) {
            let mut set = ExtentSet::default();
            let mut expected = BTreeSet::new();
            for (start, length) in ranges {
                set.add(start..start + length);
                expected.extend(start..start + length);
            }
            prop_assert_eq!(set.to_vec(), expected.into_iter().collect::<Vec<_>>());
        }
    }
}
