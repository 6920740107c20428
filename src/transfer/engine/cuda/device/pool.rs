// SPDX-License-Identifier: Apache-2.0
//! Things that are costly to make and used again: taken from a shelf, and put back when they are let go.
//!
//! What does not suit any more is dropped by another thread: to free memory of a device may wait for all that the device
//! is at (45 ms behind 40 memsets of 4 GiB on an H200), and who takes a thing has a caller, or other runs, waiting.

use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Result, Status};
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::run::disposal;

/// Idle things of a kind, and how many are in use.
pub struct Shelf<T> {
    state: Mutex<State<T>>,
    most: usize,
}

struct State<T> {
    idle: Vec<Arc<T>>,
    taken: usize,
}

impl<T: Send + Sync + 'static> Shelf<T> {
    /// An empty shelf, of which up to `most` things are in use at a time.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { idle: Vec::new(), taken: 0 }), most })
    }

    /// Takes an idle thing that suits or makes one; `None` when the most are in use. Idle things that do not suit go.
    pub fn take(
        self: &Arc<Self>,
        suits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T>,
    ) -> Result<Option<Taken<T>>> {
        let state = self.lock();
        if state.taken >= self.most { Ok(None) } else { self.take_from(state, suits, make).map(Some) }
    }

    /// Has an idle thing there that suits, unless the most are in use: what is in use was made. Nothing is taken, so that
    /// nobody who takes one meanwhile finds it in use.
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
        disposal::dispose_of(replaced);
        Ok(())
    }

    /// The same however many are in use.
    pub fn take_one_more(
        self: &Arc<Self>,
        suits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T>,
    ) -> Result<Taken<T>> {
        self.take_from(self.lock(), suits, make)
    }

    fn take_from(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State<T>>,
        suits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T>,
    ) -> Result<Taken<T>> {
        state.taken += 1;
        // Mostly all suit, and then nothing is allocated.
        let unsuitable: Vec<_> = match state.idle.iter().all(|item| suits(item)) {
            true => Vec::new(),
            false => state.idle.extract_if(.., |item| !suits(item)).collect(),
        };
        let found = state.idle.pop();
        drop(state);
        let made = found.map_or_else(|| make().map(Arc::new), Ok);
        let made = match made {
            // There may be no room beside what does not suit: this once it is waited for.
            Err(error) if error.status() == Status::OutOfMemory && !unsuitable.is_empty() => {
                drop(unsuitable);
                make().map(Arc::new)
            }
            made => {
                disposal::dispose_of(unsuitable);
                made
            }
        };
        match made {
            Ok(item) => Ok(Taken { item, is_spoiled: false, shelf: self.clone() }),
            Err(error) => {
                self.lock().taken -= 1;
                Err(error)
            }
        }
    }
}

impl<T> Shelf<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }
}

/// A thing in use; put back when dropped.
pub struct Taken<T> {
    item: Arc<T>,
    is_spoiled: bool,
    shelf: Arc<Shelf<T>>,
}

impl<T> Taken<T> {
    /// It is not to be used again: it will not be put back.
    pub fn spoil(&mut self) {
        self.is_spoiled = true;
    }
}

impl<T> Deref for Taken<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        let mut state = self.shelf.lock();
        state.taken -= 1;
        if !self.is_spoiled {
            state.idle.push(self.item.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Status};

    fn take(shelf: &Arc<Shelf<u8>>, made: u8) -> Option<Taken<u8>> {
        shelf.take(|_| true, || Ok(made)).unwrap()
    }

    #[test]
    fn things_are_made_once_and_no_more_than_the_most_are_out() {
        let shelf = Shelf::new(2);
        let first = take(&shelf, 1).unwrap();
        let mut second = take(&shelf, 2).unwrap();
        assert!(take(&shelf, 3).is_none());
        drop(first);
        assert_eq!(*take(&shelf, 3).unwrap(), 1);
        second.spoil();
        drop(second);
        let again = (take(&shelf, 4).unwrap(), take(&shelf, 5).unwrap());
        assert_eq!((*again.0, *again.1), (1, 5));
    }

    #[test]
    fn what_is_provided_is_never_in_use() {
        let shelf = Shelf::new(1);
        let (other, taken) = (shelf.clone(), std::cell::RefCell::new(None));
        // Another takes one while the shelf's own is being made: theirs is the one that is used on.
        shelf
            .provide(
                |_| true,
                || {
                    taken.replace(take(&other, 7));
                    Ok(1)
                },
            )
            .unwrap();
        assert_eq!(taken.borrow().as_deref(), Some(&7), "it was free to take");
        assert!(take(&shelf, 2).is_none(), "the most are in use");
        shelf.provide(|_| true, || panic!("one was made")).unwrap();
        taken.take();
        shelf.provide(|_| true, || panic!("one is idle")).unwrap();
        assert_eq!(*take(&shelf, 3).unwrap(), 7);
    }

    #[test]
    fn what_is_provided_takes_the_place_of_what_does_not_suit() {
        let shelf: Arc<Shelf<u8>> = Shelf::new(1);
        shelf.provide(|_| true, || Ok(1)).unwrap();
        shelf.provide(|item| *item > 1, || Ok(2)).unwrap();
        assert_eq!(*take(&shelf, 3).unwrap(), 2);
        assert_eq!(shelf.lock().idle.len(), 1);
    }

    #[test]
    fn where_there_is_no_room_beside_it_what_does_not_suit_goes_first() {
        let shelf: Arc<Shelf<Arc<()>>> = Shelf::new(1);
        let room = Arc::new(());
        let make = || match Arc::strong_count(&room) {
            1 => Ok(room.clone()),
            _ => Err(Error::new(Status::OutOfMemory, "no room")),
        };
        drop(shelf.take(|_| true, make).unwrap().unwrap());
        assert!(shelf.take(|_| false, make).unwrap().is_some());
    }

    #[test]
    fn what_can_not_be_made_does_not_count_and_what_does_not_suit_goes() {
        let shelf: Arc<Shelf<u8>> = Shelf::new(1);
        assert!(shelf.take(|_| true, || Err(Error::new(Status::Cuda, "no"))).is_err());
        drop(take(&shelf, 1));
        assert_eq!(*shelf.take(|item| *item > 1, || Ok(2)).unwrap().unwrap(), 2);
        assert_eq!(*take(&shelf, 3).unwrap(), 2);
    }
}
