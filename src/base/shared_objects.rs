// SPDX-License-Identifier: Apache-2.0
//! Objects that are made at first use, and shared by all that need an object of the same kind while one of them uses it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::base::error::{Result, fail};
use crate::base::sync::Mutex;
use crate::base::turns::Turns;

/// Objects by key. Making one may take long, and delays only threads that need one of the same key.
pub struct SharedObjects<K: Ord, T> {
    objects: Mutex<BTreeMap<K, Weak<T>>>,
    turns: Arc<Turns<K>>,
}

impl<K: Ord, T> Default for SharedObjects<K, T> {
    fn default() -> Self {
        Self { objects: Mutex::default(), turns: Arc::default() }
    }
}

impl<K: Ord + Clone, T> SharedObjects<K, T> {
    /// The object of a key, or a new one if there is none that suits, which then replaces it here. After a failure the next call makes
    /// one. Waits for another thread that makes it until `deadline`.
    pub fn get(
        &self,
        key: K,
        suits: impl Fn(&T) -> bool,
        deadline: Option<Instant>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        if let Some(known) = self.known(&key, &suits) {
            return Ok(known);
        }
        let Some(_turn) = self.turns.take(&key, deadline) else {
            fail!(TimedOut, "another thread still prepares the same memory")
        };
        // Another thread may have made it before this one had the turn.
        if let Some(known) = self.known(&key, &suits) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        let mut objects = self.objects.lock();
        objects.retain(|_, object| object.strong_count() > 0);
        objects.insert(key, Arc::downgrade(&made));
        Ok(made)
    }

    fn known(&self, key: &K, suits: &impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let known = self.objects.lock().get(key).and_then(Weak::upgrade);
        // Without the lock: freeing one that does not suit may take long.
        known.filter(|known| suits(known))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::scope;
    use std::time::Duration;

    use super::*;
    use crate::base::error::{Status, error};

    const PATIENCE: Duration = Duration::from_secs(20);

    type Numbers = SharedObjects<&'static str, u32>;

    fn get(numbers: &Numbers, key: &'static str, number: u32) -> Arc<u32> {
        numbers.get(key, |_| true, None, || Ok(number)).unwrap()
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
            let first = scope.spawn(move || numbers.get("slow", |_| true, None, slow).unwrap());
            begins.recv_timeout(PATIENCE).unwrap();
            scope.spawn(move || done.send(get(numbers, "other", 4)).unwrap());
            assert_eq!(ends.recv_timeout(PATIENCE).map(|other| *other), Ok(4));
            let late = numbers.get("slow", |_| true, Some(Instant::now()), || unreachable!());
            assert_eq!(late.unwrap_err().status(), Status::TimedOut);
            let again = scope.spawn(|| get(numbers, "slow", 6));
            open.send(()).unwrap();
            let (first, again) = (first.join().unwrap(), again.join().unwrap());
            assert!(Arc::ptr_eq(&first, &again), "it was made once");
        });
    }

    #[test]
    fn an_object_is_made_again_after_a_failure_and_its_end() {
        let numbers = Numbers::default();
        let failing = numbers.get("a", |_| true, None, || Err(error!(Nixl, "deliberate")));
        assert_eq!(failing.unwrap_err().status(), Status::Nixl);
        let first = get(&numbers, "a", 2);
        assert!(Arc::ptr_eq(&first, &get(&numbers, "a", 4)));
        drop(first);
        assert_eq!(*get(&numbers, "a", 4), 4);
    }

    #[test]
    fn an_object_that_does_not_suit_is_replaced_and_remains_with_its_users() {
        let numbers = Numbers::default();
        let first = get(&numbers, "a", 2);
        let larger = numbers.get("a", |known| *known >= 3, None, || Ok(4)).unwrap();
        assert_eq!((*first, *larger), (2, 4));
        assert!(Arc::ptr_eq(&larger, &get(&numbers, "a", 6)));
    }

    #[test]
    fn a_key_is_listed_once_and_while_its_object_exists() {
        let numbers = Numbers::default();
        let listed = || numbers.objects.lock().len();
        let first = get(&numbers, "a", 2);
        for _ in 0..3 {
            get(&numbers, "a", 4);
        }
        assert_eq!(listed(), 1);
        let _second = get(&numbers, "b", 2);
        assert_eq!(listed(), 2);
        drop(first);
        let _third = get(&numbers, "c", 2);
        assert_eq!(listed(), 2, "the first no longer exists");
    }
}
