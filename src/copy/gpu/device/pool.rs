// SPDX-License-Identifier: Apache-2.0
//! Objects that are expensive to create, and used again: taken from a pool, and returned when dropped.
//!
//! Idle objects that are no longer suitable are dropped on another thread. Freeing device memory may wait for
//! all queued work (45 ms behind 40 memsets of 4 GiB on an H200), and the thread that takes an object has a
//! caller or other runs waiting.

use std::ops::Deref;
use std::sync::Arc;

use crate::base::{Mutex, MutexGuard, Result, Status};
use crate::cuda::exit::dispose_of;

/// Idle objects of one type, and the number in use.
pub struct ResourcePool<T> {
    state: Mutex<State<T>>,
    most: usize,
    ordinal: i32,
}

struct State<T> {
    idle: Vec<Arc<T>>,
    taken: usize,
}

impl<T: Send + Sync + 'static> ResourcePool<T> {
    /// An empty pool for objects of a device. At most `most` of them are in use at a time.
    pub fn new(ordinal: i32, most: usize) -> Arc<Self> {
        let state = Mutex::new(State { idle: Vec::new(), taken: 0 });
        Arc::new(Self { state, most, ordinal })
    }

    /// Takes a suitable idle object, or creates one; `None` if `most` are in use. Drops idle ones that are
    /// not suitable.
    pub fn take(
        self: &Arc<Self>,
        suits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T>,
    ) -> Result<Option<Pooled<T>>> {
        let state = self.lock();
        if state.taken >= self.most { Ok(None) } else { self.take_from(state, suits, make).map(Some) }
    }

    /// Ensures that a suitable idle object exists, unless `most` are in use. It takes none, so that no other
    /// thread finds the pool exhausted meanwhile.
    pub fn provide(
        self: &Arc<Self>,
        suits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<()> {
        let suits_idle = |state: &State<T>| state.idle.iter().any(|item| suits(item));
        let state = self.lock();
        if state.taken >= self.most || suits_idle(&state) {
            return Ok(());
        }
        drop(state);
        let made = Arc::new(make()?);
        let mut state = self.lock();
        let is_needed = state.taken < self.most && !suits_idle(&state);
        let replaced = if is_needed { std::mem::replace(&mut state.idle, vec![made]) } else { vec![made] };
        drop(state);
        dispose_of(self.ordinal, replaced);
        Ok(())
    }

    /// Takes or creates one beyond the limit.
    pub fn take_one_more(
        self: &Arc<Self>,
        suits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T>,
    ) -> Result<Pooled<T>> {
        self.take_from(self.lock(), suits, make)
    }

    fn take_from(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<T>>,
        suits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T>,
    ) -> Result<Pooled<T>> {
        state.taken += 1;
        if !state.idle.iter().all(|item| suits(item)) {
            return self.replace_unsuitable(state, suits, make);
        }
        let found = state.idle.pop();
        drop(state);
        self.pooled(|| found.map_or_else(|| make().map(Arc::new), Ok))
    }

    /// Disposes of idle objects that do not suit.
    #[cold]
    fn replace_unsuitable(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<T>>,
        suits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T>,
    ) -> Result<Pooled<T>> {
        let unsuitable: Vec<_> = state.idle.extract_if(.., |item| !suits(item)).collect();
        let found = state.idle.pop();
        drop(state);
        self.pooled(|| match found.map_or_else(|| make().map(Arc::new), Ok) {
            // There may be no memory beside the unsuitable ones. Only then wait until they are freed.
            Err(error) if error.status() == Status::OutOfMemory => {
                drop(unsuitable);
                make().map(Arc::new)
            }
            made => {
                dispose_of(self.ordinal, unsuitable);
                made
            }
        })
    }

    /// The object in the place that was taken for it. If there is none, or `make` panics, the place is free again.
    fn pooled(self: &Arc<Self>, make: impl FnOnce() -> Result<Arc<T>>) -> Result<Pooled<T>> {
        let place = Place(self.clone());
        Ok(Pooled { item: make()?, is_spoiled: false, place })
    }
}

impl<T> ResourcePool<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

/// The place of an object that is in use, or being created.
struct Place<T>(Arc<ResourcePool<T>>);

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        self.0.lock().taken -= 1;
    }
}

/// An object in use; returned to the pool when dropped.
pub struct Pooled<T> {
    item: Arc<T>,
    is_spoiled: bool,
    place: Place<T>,
}

impl<T> Pooled<T> {
    /// Prevents it from being used again.
    pub fn spoil(&mut self) {
        self.is_spoiled = true;
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T> Drop for Pooled<T> {
    fn drop(&mut self) {
        // Before its place is free: a thread that gets the place finds the object.
        if !self.is_spoiled {
            self.place.0.lock().idle.push(self.item.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Error, Status};

    fn take(pool: &Arc<ResourcePool<u8>>, made: u8) -> Option<Pooled<u8>> {
        pool.take(|_| true, || Ok(made)).unwrap()
    }

    #[test]
    fn objects_are_reused_and_no_more_than_the_maximum_are_in_use() {
        let pool = ResourcePool::new(0, 2);
        let first = take(&pool, 1).unwrap();
        let mut second = take(&pool, 2).unwrap();
        assert!(take(&pool, 3).is_none());
        drop(first);
        assert_eq!(*take(&pool, 3).unwrap(), 1);
        second.spoil();
        drop(second);
        let again = (take(&pool, 4).unwrap(), take(&pool, 5).unwrap());
        assert_eq!((*again.0, *again.1), (1, 5));
    }

    #[test]
    fn providing_an_object_does_not_take_it() {
        let pool = ResourcePool::new(0, 1);
        let (other, taken) = (pool.clone(), std::cell::RefCell::new(None));
        // Another thread takes one while this one is being created: that one stays in use.
        pool.provide(
            |_| true,
            || {
                taken.replace(take(&other, 7));
                Ok(1)
            },
        )
        .unwrap();
        assert_eq!(taken.borrow().as_deref(), Some(&7), "the pool was not exhausted");
        assert!(take(&pool, 2).is_none(), "the maximum is in use");
        pool.provide(|_| true, || panic!("an object was created")).unwrap();
        taken.take();
        pool.provide(|_| true, || panic!("an object is idle")).unwrap();
        assert_eq!(*take(&pool, 3).unwrap(), 7);
    }

    #[test]
    fn a_provided_object_replaces_unsuitable_ones() {
        let pool: Arc<ResourcePool<u8>> = ResourcePool::new(0, 1);
        pool.provide(|_| true, || Ok(1)).unwrap();
        pool.provide(|item| *item > 1, || Ok(2)).unwrap();
        assert_eq!(*take(&pool, 3).unwrap(), 2);
        assert_eq!(pool.lock().idle.len(), 1);
    }

    #[test]
    fn unsuitable_objects_are_freed_first_if_memory_is_exhausted() {
        let pool: Arc<ResourcePool<Arc<()>>> = ResourcePool::new(0, 1);
        let memory = Arc::new(());
        let make = || match Arc::strong_count(&memory) {
            1 => Ok(memory.clone()),
            _ => Err(Error::new(Status::OutOfMemory, "exhausted")),
        };
        drop(pool.take(|_| true, make).unwrap().unwrap());
        assert!(pool.take(|_| false, make).unwrap().is_some());
    }

    #[test]
    fn an_object_that_cannot_be_created_does_not_count_as_in_use() {
        let pool: Arc<ResourcePool<u8>> = ResourcePool::new(0, 1);
        assert!(pool.take(|_| true, || Err(Error::new(Status::Cuda, "no"))).is_err());
        let panics = || pool.take(|_| true, || panic!("no"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        drop(take(&pool, 1));
        assert_eq!(*pool.take(|item| *item > 1, || Ok(2)).unwrap().unwrap(), 2);
        assert_eq!(*take(&pool, 3).unwrap(), 2);
    }
}
