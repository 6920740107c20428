// SPDX-License-Identifier: Apache-2.0
//! State that the process has for each of a few keys, such as devices.

use std::sync::Arc;

use crate::base::sync::Mutex;

/// A value for each key, created at its first use. The lock is held only while a value is found, so that work on the value of
/// one key never delays another key.
pub struct Keyed<K, V>(Mutex<Vec<(K, Arc<V>)>>);

impl<K, V> Keyed<K, V> {
    /// No values.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<K, V> Default for Keyed<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: PartialEq, V> Keyed<K, V> {
    pub fn get(&self, key: K) -> Arc<V>
    where
        V: Default,
    {
        self.get_or(key, usize::MAX, V::default)
    }

    /// The value of a key, at first that of `new`. If there are `most` values, those that nothing uses are dropped before another is added.
    pub fn get_or(&self, key: K, most: usize, new: impl FnOnce() -> V) -> Arc<V> {
        let mut all = self.0.lock();
        if let Some((_, value)) = all.iter().find(|(known, _)| *known == key) {
            return value.clone();
        }
        if all.len() >= most {
            all.retain(|(_, value)| Arc::strong_count(value) > 1);
        }
        let value = Arc::new(new());
        all.push((key, value.clone()));
        value
    }

    pub fn all(&self) -> Vec<Arc<V>> {
        self.0.lock().iter().map(|(_, value)| value.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_values_those_in_use_are_kept() {
        let values = Keyed::new();
        let used = values.get_or(0, 4, || 10);
        (1..4).for_each(|key| drop(values.get_or(key, 4, || 10 * key)));
        assert_eq!((*values.get_or(1, 4, || 0), values.all().len()), (10, 4));
        assert_eq!((*values.get_or(4, 4, || 40), values.all().len()), (40, 2));
        assert!(Arc::ptr_eq(&used, &values.get_or(0, 4, || 0)));
    }
}
