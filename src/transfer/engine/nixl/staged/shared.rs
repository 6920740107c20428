// SPDX-License-Identifier: Apache-2.0
//! Objects that are made at first use, and shared by all that need an object of the same kind while one of them uses it.
#![forbid(unsafe_code)]

use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::sync::Mutex;

/// Objects by key. Making one may take long, and delays only threads that need one of the same key.
pub struct SharedObjects<K, T>(Mutex<Vec<Arc<Cell<K, T>>>>);

/// The object of a key, if it exists.
struct Cell<K, T> {
    key: K,
    /// Locked while the object is made.
    current: Mutex<Weak<T>>,
}

impl<K, T> Default for SharedObjects<K, T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<K: PartialEq, T> SharedObjects<K, T> {
    /// The object of a key, or a new one if there is none that is usable. After a failure the next call makes one.
    pub fn get(
        &self,
        key: K,
        is_usable: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let cell = self.cell(key);
        let mut current = cell.current.lock();
        let known = current.upgrade();
        let found = match &known {
            Some(known) if is_usable(known) => Ok(known.clone()),
            _ => make().map(Arc::new).inspect(|made| *current = Arc::downgrade(made)),
        };
        drop(current);
        // After the lock: this may be the last reference, and dropping it may take long.
        drop(known);
        found
    }

    /// The cell of a key. Cells that no thread uses, and whose objects no longer exist, are removed.
    fn cell(&self, key: K) -> Arc<Cell<K, T>> {
        let mut cells = self.0.lock();
        cells.retain(|cell| Arc::strong_count(cell) > 1 || cell.has_object());
        if let Some(cell) = cells.iter().find(|cell| cell.key == key) {
            return cell.clone();
        }
        let cell = Arc::new(Cell { key, current: Mutex::new(Weak::new()) });
        cells.push(cell.clone());
        cell
    }
}

impl<K, T> Cell<K, T> {
    fn has_object(&self) -> bool {
        self.current.try_lock().is_none_or(|current| current.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::scope;
    use std::time::Duration;

    use super::*;
    use crate::error::{Error, Status};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// The objects are numbers. An odd one is not usable.
    type Numbers = SharedObjects<&'static str, u32>;

    fn get(numbers: &Numbers, key: &'static str, number: u32) -> Arc<u32> {
        numbers.get(key, |known| known % 2 == 0, || Ok(number)).unwrap()
    }

    fn make_at(gate: &Receiver<()>, number: u32) -> Result<u32> {
        gate.recv_timeout(PATIENCE).unwrap();
        Ok(number)
    }

    #[test]
    fn an_object_that_is_made_delays_only_threads_that_need_it() {
        let numbers = Numbers::default();
        let (begun, begins) = channel();
        let (open, gate) = channel();
        let (numbers, slow) = (&numbers, move || {
            begun.send(()).unwrap();
            make_at(&gate, 2)
        });
        scope(|scope| {
            let (done, ends) = channel();
            let first = scope.spawn(move || numbers.get("slow", |_| true, slow).unwrap());
            begins.recv_timeout(PATIENCE).unwrap();
            scope.spawn(move || done.send(get(numbers, "other", 4)).unwrap());
            assert_eq!(ends.recv_timeout(PATIENCE).map(|other| *other), Ok(4));
            let again = scope.spawn(|| get(numbers, "slow", 6));
            open.send(()).unwrap();
            let (first, again) = (first.join().unwrap(), again.join().unwrap());
            assert!(Arc::ptr_eq(&first, &again), "it was made once");
        });
    }

    #[test]
    fn an_object_is_made_again_after_a_failure_a_retirement_and_its_end() {
        let numbers = Numbers::default();
        let failing = numbers.get("a", |_| true, || Err(Error::new(Status::Nixl, "deliberate")));
        assert_eq!(failing.unwrap_err().status(), Status::Nixl);
        let odd = get(&numbers, "a", 1);
        let even = get(&numbers, "a", 2);
        assert_eq!((*odd, *even), (1, 2), "the first one is not usable");
        assert!(Arc::ptr_eq(&even, &get(&numbers, "a", 4)));
        drop(even);
        assert_eq!(*get(&numbers, "a", 4), 4);
    }

    #[test]
    fn a_key_is_listed_once_and_while_its_object_exists() {
        let numbers = Numbers::default();
        let listed = || numbers.0.lock().len();
        let first = get(&numbers, "a", 2);
        for _ in 0..3 {
            get(&numbers, "a", 4);
        }
        assert_eq!(listed(), 1);
        let _second = get(&numbers, "b", 2);
        assert_eq!(listed(), 2);
        drop(first);
        get(&numbers, "b", 4);
        assert_eq!(listed(), 1, "the first no longer exists");
    }
}
