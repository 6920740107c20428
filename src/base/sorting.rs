// SPDX-License-Identifier: Apache-2.0
//! Sorts with little code per type of element: those of the standard library have 5 to 8 KB for each.

use std::cmp::Ordering;

use crate::base::error::Result;
use crate::base::lists;

/// Sorts a few elements, such as the axes and loops of a block, by a key. Equal elements stay in their order.
pub fn sort_few_by_key<T, K: Ord>(all: &mut [T], key: impl Fn(&T) -> K) {
    sort_few_by(all, |one, other| key(one).cmp(&key(other)));
}

/// Sorts a few elements by a comparison. Equal elements stay in their order.
pub fn sort_few_by<T>(all: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    for end in 1..all.len() {
        let mut at = end;
        while at > 0 && compare(&all[at], &all[at - 1]).is_lt() {
            all.swap(at, at - 1);
            at -= 1;
        }
    }
}

/// The values of any number of elements, each once, in order. There are few values, such as devices.
pub fn few_distinct<T: Ord>(elements: impl Iterator<Item = T>) -> Vec<T> {
    let mut values = Vec::new();
    for element in elements {
        if let Err(at) = values.binary_search(&element) {
            values.insert(at, element);
        }
    }
    values
}

/// Sorts by an id. Equal elements stay in their order. At most 2^32 elements. Fails if there is no memory to sort in.
pub fn sort_by_id<T: Copy>(all: &mut Vec<T>, id: impl Fn(&T) -> u32) -> Result<()> {
    if all.is_sorted_by_key(&id) {
        return Ok(());
    }
    let keys = all.iter().zip(0u64..).map(|(each, index)| u64::from(id(each)) << 32 | index);
    let mut keys = lists::collect(keys)?;
    // Words are sorted in half the time that runs of blocks are.
    keys.sort_unstable();
    *all = lists::collect(keys.into_iter().map(|key| all[key as u32 as usize]))?;
    Ok(())
}

/// Sorts by a number. If the numbers differ by so much that their difference and an index do not fit in a word, the lowest bits of the
/// difference do not count. Fails if there is no memory to sort in.
pub fn sort_by_number<T: Copy>(all: &mut Vec<T>, number: impl Fn(&T) -> u64) -> Result<()> {
    let least = all.iter().map(&number).min().unwrap_or_default();
    let range = all.iter().map(|each| number(each) - least).max().unwrap_or_default();
    let index_bits = u64::BITS - (all.len() as u64).leading_zeros();
    let left_out = index_bits.saturating_sub(range.leading_zeros());
    let key = |(each, index): (&T, u64)| (number(each) - least) >> left_out << index_bits | index;
    let mut keys = lists::collect(all.iter().zip(0u64..).map(key))?;
    keys.sort_unstable();
    let index = |key: u64| (key & ((1 << index_bits) - 1)) as usize;
    *all = lists::collect(keys.into_iter().map(|key| all[index(key)]))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equal_elements_stay_in_their_order(mut all in prop::collection::vec((0u32..5, any::<u32>()), 0..9)) {
            let mut expected = all.clone();
            expected.sort_by_key(|each| each.0);
            sort_few_by_key(&mut all, |each| each.0);
            prop_assert_eq!(all, expected);
        }

        #[test]
        fn few_values_are_listed_once_and_in_order(all in prop::collection::vec(0u8..9, 0..99)) {
            let expected: Vec<_> = BTreeSet::from_iter(all.clone()).into_iter().collect();
            prop_assert_eq!(few_distinct(all.into_iter()), expected);
        }

        #[test]
        fn numbers_are_sorted_whatever_their_range(mut all in prop::collection::vec((any::<u64>(), any::<u8>()), 0..99), shift in 0u32..64) {
            // Of 99 elements, 7 bits of the widest range do not count.
            all.iter_mut().for_each(|each| each.0 = u64::MAX - (each.0 >> shift >> 7 << 7));
            let mut expected = all.clone();
            expected.sort_by_key(|each| each.0);
            sort_by_number(&mut all, |each| each.0).unwrap();
            prop_assert_eq!(all, expected);
        }

        #[test]
        fn elements_with_the_same_id_stay_in_their_order(mut all in prop::collection::vec((0u32..50, any::<u8>()), 0..99)) {
            let mut expected = all.clone();
            expected.sort_by_key(|each| each.0);
            sort_by_id(&mut all, |each| each.0).unwrap();
            prop_assert_eq!(all, expected);
        }
    }
}
