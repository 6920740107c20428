// SPDX-License-Identifier: Apache-2.0
//! State that the process has for each of a few keys, such as devices.

#![forbid(unsafe_code)]

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

impl<K: PartialEq, V: Default> Keyed<K, V> {
    /// The value of a key.
    pub fn get(&self, key: K) -> Arc<V> {
        let mut all = self.0.lock();
        if let Some((_, value)) = all.iter().find(|(known, _)| *known == key) {
            return value.clone();
        }
        let value = Arc::<V>::default();
        all.push((key, value.clone()));
        value
    }

    /// All values.
    pub fn all(&self) -> Vec<Arc<V>> {
        self.0.lock().iter().map(|(_, value)| value.clone()).collect()
    }
}
