// SPDX-License-Identifier: Apache-2.0
//! Objects that runs share with threads, and that later runs use again: a run that is submitted again allocates nothing.

use std::sync::Arc;

use crate::base::Mutex;

/// The maximum number of objects that are kept. A thread that was woken late may still have one of an earlier run.
const MAX: usize = 8;

/// Objects, some of which are in use.
pub struct Spares<T>(Mutex<Vec<Arc<T>>>);

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Default> Spares<T> {
    /// An object that is not in use, filled by `fill`. If there is none, a new one.
    pub fn take(&self, fill: impl FnOnce(&mut T)) -> Arc<T> {
        let mut taken = self.unused().unwrap_or_default();
        // Not under the lock, because it may take long: no other thread has the object.
        if let Some(unused) = Arc::get_mut(&mut taken) {
            fill(unused);
        }
        let mut all = self.0.lock();
        if all.len() < MAX {
            all.push(taken.clone());
        }
        taken
    }

    fn unused(&self) -> Option<Arc<T>> {
        let mut all = self.0.lock();
        let index = all.iter_mut().position(|spare| Arc::get_mut(spare).is_some())?;
        Some(all.swap_remove(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_that_are_not_in_use_are_used_again() {
        let spares = Spares::<Vec<u8>>::default();
        let first = spares.take(|list| list.push(1));
        let second = spares.take(|list| list.push(2));
        assert_eq!((&first[..], &second[..]), (&[1][..], &[2][..]));
        let memory = first.as_ptr();
        drop(first);
        let third = spares.take(|list| list[0] = 3);
        assert_eq!((third.as_ptr(), &third[..]), (memory, &[3][..]));
    }

    #[test]
    fn few_are_kept() {
        let spares = Spares::<u8>::default();
        let taken: Vec<_> = (0..2 * MAX).map(|_| spares.take(|_| ())).collect();
        drop(taken);
        assert_eq!(spares.0.lock().len(), MAX);
    }
}
