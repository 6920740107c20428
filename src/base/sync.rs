// SPDX-License-Identifier: Apache-2.0
//! Locks without poisoning.
//!
//! A panic never leaves the data of a lock half changed: fields that must change together are changed by code that cannot
//! panic, and later calls on a handle fail after a call panicked. So the poison flag of std's locks is ignored, in this file
//! only.
//!
//! The locks are std's, which survive a fork: the table in which parking_lot lists waiting threads can be locked while another
//! thread forks, and then stays locked in the child.
//!
//! With `--cfg kvmem_model` the locks, and the atomic numbers of files that use those of this one, are those of
//! [`super::modelled`].

#[cfg(not(kvmem_model))]
use std::sync as base;
#[cfg(not(kvmem_model))]
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

use self::atomic::{AtomicUsize, Ordering};
#[cfg(kvmem_model)]
use super::modelled as base;
#[cfg(kvmem_model)]
pub use super::modelled::atomic;

/// Atomic numbers.
#[cfg(not(kvmem_model))]
pub use std::sync::atomic;

/// The guard of a locked [`Mutex`].
pub type MutexGuard<'a, T> = base::MutexGuard<'a, T>;

#[derive(Debug, Default)]
pub struct Mutex<T>(base::Mutex<T>);

/// A condition variable. What the threads wait for must only change while the mutex is locked.
///
/// That of std makes a system call for each notification, which takes longer than the rest of the end of a short request. So
/// the threads that wait are counted. A waiting thread is counted before it unlocks the mutex, so a thread that changes the
/// condition under the mutex, then notifies, sees the count.
#[derive(Debug, Default)]
pub struct Condvar {
    base: base::Condvar,
    waiting: AtomicUsize,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(base::Mutex::new(value))
    }
}

#[cfg(not(kvmem_model))]
impl<T> Mutex<T> {
    /// Waits until it can lock the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex if no thread has.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, of which there is no other reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(not(kvmem_model))]
impl Condvar {
    /// Unlocks the mutex, waits for a notification, and locks it again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let _waiting = Waiting::begin(&self.waiting);
        self.base.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for no longer than `timeout`. Also returns whether that has passed.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let _waiting = Waiting::begin(&self.waiting);
        let (guard, wait) = self.base.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (guard, wait.timed_out())
    }
}

#[cfg(kvmem_model)]
impl<T> Mutex<T> {
    /// Waits until it can lock the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    /// Locks the mutex if no thread has.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// The value, of which there is no other reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

#[cfg(kvmem_model)]
impl Condvar {
    /// Unlocks the mutex, waits for a notification, and locks it again.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let _waiting = Waiting::begin(&self.waiting);
        self.base.wait(&mut guard);
        guard
    }

    /// The same for no longer than `timeout`. Also returns whether that has passed.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let _waiting = Waiting::begin(&self.waiting);
        let timed_out = self.base.wait_for(&mut guard, timeout).timed_out();
        (guard, timed_out)
    }
}

impl Condvar {
    /// A condition variable that no thread waits for.
    pub const fn new() -> Self {
        Self { base: base::Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    /// Waits while the condition holds.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Waits for a notification until a deadline, without one for ever. `Err` if the deadline has passed before.
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'a, T>, MutexGuard<'a, T>> {
        let Some(deadline) = deadline else { return Ok(self.wait(guard)) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(guard),
            left => Ok(self.wait_timeout(guard, left).0),
        }
    }

    /// Waits while the condition holds, until a deadline. `Err` if it still holds then.
    pub fn wait_while_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Result<MutexGuard<'a, T>, MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait_until(guard, deadline)?;
        }
        Ok(guard)
    }

    /// Wakes one of the threads that wait.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.base.notify_one();
        }
    }

    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.base.notify_all();
        }
    }
}

/// A thread that waits, from before it unlocks the mutex until it has locked it again.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_lock_can_be_taken_after_a_panic() {
        let lock = Mutex::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("deliberate");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 1);
        assert_eq!(lock.try_lock().map(|guard| *guard), Some(1));
    }

    #[test]
    fn a_wait_ends_at_the_timeout_or_when_the_condition_is_false() {
        let (lock, change) = (Mutex::new(0), Condvar::new());
        let (guard, timed_out) = change.wait_timeout(lock.lock(), Duration::ZERO);
        assert!(timed_out);
        drop(guard);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *lock.lock() = 1;
                change.notify_all();
            });
            assert_eq!(*change.wait_while(lock.lock(), |value| *value == 0), 1);
        });
    }
}
