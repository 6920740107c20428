// SPDX-License-Identifier: Apache-2.0
//! Locks and atomic numbers of loom, which runs a closure in every order of its threads, and with every value that a load may return:
//! `make models`. They have the interface of those that the usual build has, with constructors for statics. So each is created in
//! loom at its first use in an execution, and that of a static is created again in the next one. The value under a lock remains: what a
//! model leaves in a static is what the next execution finds there.
//!
//! No wait ends at a timeout. All threads of a model are one thread of the system, so the locks of std below are never contended.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex as Base, MutexGuard as BaseGuard, PoisonError};
use std::time::Duration;

use loom::sync as model;

/// The number of this execution of a model.
static EXECUTION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Runs a model in all orders with at most so many preemptions, and prints their number.
pub fn explore(name: &str, preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    static TURN: Base<()> = Base::new(());
    let _turn = locked(&TURN);
    let before = EXECUTION.load(Ordering::Relaxed);
    let mut explored = loom::model::Builder::new();
    explored.preemption_bound = Some(preemptions);
    explored.max_branches = 100_000;
    let body = Arc::new(body);
    explored.check(move || {
        EXECUTION.fetch_add(1, Ordering::Relaxed);
        atomic::begin();
        let body = body.clone();
        spawn(move || body()).join().unwrap();
    });
    let executions = EXECUTION.load(Ordering::Relaxed) - before;
    assert!(executions > 1, "the model {name} has one order");
    println!("model {name}: {executions} orders");
}

/// Starts a thread of a model.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> loom::thread::JoinHandle<T> {
    // The default, which the first thread has, is 32 KiB: less than an error needs with its text.
    loom::thread::Builder::new().stack_size(STACK).spawn(body).unwrap()
}

/// Words of the stack of a thread.
const STACK: usize = 1 << 15;

fn locked<T>(lock: &Base<T>) -> BaseGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An object of loom, of this execution.
struct OfExecution<T>(Base<Option<(u64, Arc<T>)>>);

impl<T> OfExecution<T> {
    const fn new() -> Self {
        Self(Base::new(None))
    }

    fn get(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let execution = EXECUTION.load(Ordering::Relaxed);
        let mut known = locked(&self.0);
        match &*known {
            Some((of, object)) if *of == execution => object.clone(),
            _ => known.insert((execution, Arc::new(make()))).1.clone(),
        }
    }
}

pub struct Mutex<T> {
    turn: OfExecution<model::Mutex<()>>,
    value: Base<T>,
}

pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// `None` while it waits for a notification.
    value: Option<BaseGuard<'a, T>>,
    turn: Option<model::MutexGuard<'static, ()>>,
    /// Declared last: `turn` borrows it.
    _model: Arc<model::Mutex<()>>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self { turn: OfExecution::new(), value: Base::new(value) }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        let model = self.turn.get(|| model::Mutex::new(()));
        let turn = model.lock().unwrap_or_else(PoisonError::into_inner);
        self.locked(&model, turn)
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let model = self.turn.get(|| model::Mutex::new(()));
        let turn = model.try_lock().ok()?;
        Some(self.locked(&model, turn))
    }

    fn locked(&self, model: &Arc<model::Mutex<()>>, turn: model::MutexGuard<'_, ()>) -> MutexGuard<'_, T> {
        // SAFETY: the guard of this file holds the lock that the one of loom borrows, and drops it later.
        let turn =
            unsafe { std::mem::transmute::<model::MutexGuard<'_, ()>, model::MutexGuard<'static, ()>>(turn) };
        MutexGuard { lock: self, value: Some(locked(&self.value)), turn: Some(turn), _model: model.clone() }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap()
    }
}

#[derive(Default)]
pub struct Condvar(OfExecution<model::Condvar>);

impl<T> Default for OfExecution<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Condvar")
    }
}

/// How a wait with a timeout has ended.
pub struct Waited;

impl Waited {
    pub fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    pub const fn new() -> Self {
        Self(OfExecution::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let condition = self.get();
        guard.value = None;
        let turn = guard.turn.take().unwrap();
        guard.turn = Some(condition.wait(turn).unwrap_or_else(PoisonError::into_inner));
        guard.value = Some(locked(&guard.lock.value));
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> Waited {
        self.wait(guard);
        Waited
    }

    pub fn notify_one(&self) {
        self.get().notify_one();
    }

    pub fn notify_all(&self) {
        self.get().notify_all();
    }

    fn get(&self) -> Arc<model::Condvar> {
        self.0.get(model::Condvar::new)
    }
}

/// Atomic numbers, which are 0 or false at the start of each execution, as in the constructors of all that a model uses.
pub mod atomic {
    use std::cell::RefCell;
    use std::collections::HashMap;

    pub use loom::sync::atomic::fence;
    pub use std::sync::atomic::Ordering;

    use super::{Arc, Base, EXECUTION, OfExecution, locked, model};

    /// Numbers of each type that an execution can use.
    const NUMBERS: usize = 24;

    /// Numbers that the first thread of an execution has made before it started others: loom reports one that is used by a
    /// thread which does not know of its creation, and the numbers of this file are created in loom when they are first used.
    pub(super) fn begin() {
        AtomicBool::begin();
        AtomicU32::begin();
        AtomicU64::begin();
        AtomicUsize::begin();
    }

    macro_rules! atomic {
        ($name:ident, $value:ty, $store:ident, $($change:ident)*) => {
            pub struct $name(OfExecution<model::atomic::$name>);

            impl $name {
                pub const fn new(value: $value) -> Self {
                    assert!(value as u8 == 0, "a number of a model is 0 at first");
                    Self(OfExecution::new())
                }

                fn begin() {
                    let made = (0..NUMBERS).map(|_| model::atomic::$name::new(<$value>::default()));
                    let _ = Self::with_unused(|unused| std::mem::replace(unused, made.collect()));
                }

                fn with_unused<R>(with: impl FnOnce(&mut Vec<model::atomic::$name>) -> R) -> R {
                    thread_local!(static UNUSED: RefCell<Vec<model::atomic::$name>> = const { RefCell::new(Vec::new()) });
                    UNUSED.with_borrow_mut(with)
                }

                fn get(&self) -> Arc<model::atomic::$name> {
                    self.0.get(|| Self::with_unused(Vec::pop).unwrap())
                }

                pub fn load(&self, order: Ordering) -> $value {
                    self.get().load(order)
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    self.get().$store(value, order);
                }

                $(pub fn $change(&self, value: $value, order: Ordering) -> $value {
                    self.get().$change(value, order)
                })*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new(<$value>::default())
                }
            }

            impl std::fmt::Debug for $name {
                fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    formatter.write_str(stringify!($name))
                }
            }
        };
    }

    atomic!(AtomicBool, bool, store, swap);
    // The state of a run is changed by read-modify-write operations that change nothing, and by stores. Loom does not know that a
    // store comes after such an operation that has read an older value, and would let a thread that has seen the store read that value.
    atomic!(AtomicU32, u32, swap, fetch_or fetch_and);
    atomic!(AtomicU64, u64, store, fetch_add);
    atomic!(AtomicUsize, usize, store, fetch_add fetch_sub);

    /// The word of mapped memory at an address: a number of loom has no address of its own.
    pub fn word_at(address: u64) -> Arc<AtomicU64> {
        static WORDS: Base<Option<(u64, HashMap<u64, Arc<AtomicU64>>)>> = Base::new(None);
        let execution = EXECUTION.load(Ordering::Relaxed);
        let mut words = locked(&WORDS);
        if !matches!(&*words, Some((of, _)) if *of == execution) {
            *words = Some((execution, HashMap::new()));
        }
        let (_, words) = words.as_mut().unwrap();
        words.entry(address).or_default().clone()
    }
}
