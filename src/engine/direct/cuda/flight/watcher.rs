// SPDX-License-Identifier: Apache-2.0
//! The thread of a GPU that starts runs when their resources are free, and checks them until they end. It exists while there are
//! runs. The driver may delay it, for example while it allocates staging memory, so that no other GPU has the same.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{
    Error, Keyed, Mutex, MutexGuard, Pool, Promise, Result, Shared, WorkThread, guarded, log, thread,
};
use crate::copy::gpu::{DeviceState, Resource};

/// Resources that are in use, per device.
pub type Exhausted = HashSet<(*const DeviceState, Resource)>;

/// A run that is checked until it ends.
pub trait Watched: Send + Sync {
    /// Starts it unless it needs an exhausted resource. Returns whether it was started, and adds the resource
    /// that it waits for.
    fn start_unless(self: Arc<Self>, full: &mut Exhausted) -> bool;
    fn is_over(&self) -> bool;
    /// Whether its end is known, without checking it and without waiting.
    fn is_known_over(&self) -> bool;
    /// Ends it after a panic, in any state.
    fn abandon(&self, error: &Error);
}

/// All runs of this process on a GPU.
#[derive(Default)]
pub struct Watcher(Mutex<Watch>);

#[derive(Default)]
struct Watch {
    new: Vec<Arc<dyn Watched>>,
    /// An empty list for the next thread.
    spare: Vec<Arc<dyn Watched>>,
    thread: WorkThread,
}

/// A promise that a run will be watched.
pub type Reservation = Promise<Watcher>;

/// How long the thread polls after a run arrived or ended, before it sleeps between checks.
const SPIN: Duration = Duration::from_micros(200);
/// The maximum if threads wake late.
const MAX_SPIN: Duration = Duration::from_millis(2);
/// How long it sleeps between checks.
const SLEEP: Duration = Duration::from_micros(20);
/// How long the thread stays without runs. Starting it again takes several times as long as one sleep.
const STAY: Duration = Duration::from_millis(5);

impl Watcher {
    /// The watcher of a device.
    pub fn for_device(device: &DeviceState) -> Arc<Self> {
        static WATCHERS: Keyed<i32, Watcher> = Keyed::new();
        WATCHERS.get(device.context().device().ordinal())
    }

    /// Reserves a place for a run. Called before the run is submitted, because no run may begin if no thread
    /// can watch it.
    pub fn reserve(self: &Arc<Self>) -> Result<Reservation> {
        let mut watch = self.lock();
        // Runs that ended before the thread woke: their objects can be used again.
        watch.new.retain(|in_flight| !in_flight.is_known_over());
        let _woken = watch.thread.ensure(|| Pool::services().run_alone(self.clone()))?;
        let reservation = watch.thread.promise(self);
        drop(watch);
        Ok(reservation)
    }

    /// Moves new runs to `runs_in_flight`, and returns whether there were any. Returns `None` if the thread may end. The
    /// list of new runs keeps its capacity, so that adding to it allocates nothing.
    fn take_new(&self, runs_in_flight: &mut Vec<Arc<dyn Watched>>, idle: bool) -> Option<bool> {
        let mut watch = self.lock();
        let has_new = !watch.new.is_empty();
        if !watch.thread.goes_on(has_new || !idle) {
            watch.spare = std::mem::take(runs_in_flight);
            return None;
        }
        runs_in_flight.append(&mut watch.new);
        Some(has_new)
    }

    /// Starts and checks runs until there are none.
    fn watch(&self, runs_in_flight: &mut Vec<Arc<dyn Watched>>) {
        let mut rest = Rest::new();
        loop {
            let idle = runs_in_flight.is_empty() && rest.quiet() > STAY;
            // A new run may end soon, so it counts as progress.
            let Some(mut progressed) = self.take_new(runs_in_flight, idle) else { return };
            let before = runs_in_flight.len();
            progressed |= start_all(runs_in_flight);
            runs_in_flight.retain(|in_flight| !step(in_flight, || in_flight.is_over()).unwrap_or(true));
            progressed |= runs_in_flight.len() < before;
            rest.after(progressed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock()
    }
}

impl Reservation {
    /// Hands over a run: the watcher starts it if necessary, and checks it until it ends.
    pub fn add(self, in_flight: Arc<dyn Watched>) {
        self.to.lock().new.push(in_flight);
    }
}

impl Shared for Watcher {
    fn run(&self) {
        thread::wake_precisely();
        let mut runs_in_flight = std::mem::take(&mut self.lock().spare);
        // Neither the runs nor the thread end by a panic: both were promised by a reservation.
        while let Err(panic) = guarded(|| self.watch(&mut runs_in_flight)) {
            log!(Error, "panic on the thread that watches copies: {panic}");
        }
    }
}

/// Waits between two checks: polls for a while after a run arrived or ended, then sleeps. The time to poll depends on the
/// machine. If threads wake late, as on cores that enter a sleep state, a sleep would delay the report of an end by more
/// than the run's duration.
struct Rest {
    progress: Instant,
    /// How late the last sleep ended.
    late: Duration,
}

impl Rest {
    fn new() -> Self {
        Self { progress: Instant::now(), late: Duration::ZERO }
    }

    /// Time since a run arrived or ended.
    fn quiet(&self) -> Duration {
        self.progress.elapsed()
    }

    fn after(&mut self, progressed: bool) {
        if progressed {
            self.progress = Instant::now();
        } else if self.quiet() < self.spin() {
            std::thread::yield_now();
        } else {
            let asleep = Instant::now();
            std::thread::sleep(SLEEP);
            self.late = asleep.elapsed().saturating_sub(SLEEP);
        }
    }

    /// Long enough that sleeping delays the report of an end by at most a tenth of the run's duration.
    fn spin(&self) -> Duration {
        (10 * self.late).clamp(SPIN, MAX_SPIN)
    }
}

/// Starts runs in order of submission: no run overtakes another that waits for the same resource. Returns whether any was
/// started.
fn start_all(runs_in_flight: &mut Vec<Arc<dyn Watched>>) -> bool {
    let mut full = Exhausted::new();
    let mut any = false;
    runs_in_flight.retain(|in_flight| {
        let started = step(in_flight, || in_flight.clone().start_unless(&mut full));
        any |= started == Some(true);
        started.is_some()
    });
    any
}

/// Executes one step of a run. A panic ends only that run, and returns `None`. If ending it panics too, it is not checked again.
fn step<R>(in_flight: &Arc<dyn Watched>, step: impl FnOnce() -> R) -> Option<R> {
    guarded(step)
        .inspect_err(|error| {
            log!(Error, "panic on the thread that watches copies: {error}");
            if let Err(again) = guarded(|| in_flight.abandon(error)) {
                log!(Error, "panic while a run that had panicked was ended: {again}");
            }
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::base::Status;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[derive(Clone, Copy, PartialEq)]
    enum Panics {
        Never,
        Checked,
        /// Whatever is done with it.
        Always,
    }

    /// A run that panics when it is checked, or ends after a few checks.
    struct Fake {
        panics: Panics,
        checks: AtomicUsize,
        ends: Mutex<Sender<Option<Status>>>,
    }

    impl Watched for Fake {
        fn start_unless(self: Arc<Self>, _: &mut Exhausted) -> bool {
            false
        }

        fn is_over(&self) -> bool {
            assert!(self.panics == Panics::Never, "deliberate");
            let is_over = self.checks.fetch_add(1, Ordering::Relaxed) > 3;
            if is_over {
                self.ends.lock().send(None).unwrap();
            }
            is_over
        }

        fn is_known_over(&self) -> bool {
            false
        }

        fn abandon(&self, error: &Error) {
            assert!(self.panics != Panics::Always, "deliberate");
            self.ends.lock().send(Some(error.status())).unwrap();
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            assert!(self.panics != Panics::Always, "deliberate");
        }
    }

    fn add(watcher: &Arc<Watcher>, panics: Panics, ends: &Sender<Option<Status>>) {
        let (checks, ends) = (AtomicUsize::new(0), Mutex::new(ends.clone()));
        watcher.reserve().unwrap().add(Arc::new(Fake { panics, checks, ends }));
    }

    #[test]
    fn a_thread_that_wakes_late_polls_longer() {
        let spin = |late| Rest { progress: Instant::now(), late }.spin();
        assert_eq!(spin(Duration::ZERO), SPIN);
        assert_eq!(spin(Duration::from_micros(100)), Duration::from_millis(1));
        assert_eq!(spin(Duration::from_secs(1)), MAX_SPIN, "it was preempted");
    }

    #[test]
    fn a_panic_ends_one_run_and_the_watcher_continues_with_the_others() {
        let (watcher, (sender, receiver)) = (Arc::default(), channel());
        [Panics::Never, Panics::Checked, Panics::Never]
            .iter()
            .for_each(|panics| add(&watcher, *panics, &sender));
        let mut ends: Vec<_> = (0..3).map(|_| receiver.recv_timeout(PATIENCE).unwrap()).collect();
        ends.sort_by_key(|end| end.is_some());
        assert_eq!(ends, [None, None, Some(Status::Panic)]);
    }

    #[test]
    fn the_thread_and_the_other_runs_survive_a_run_that_cannot_even_be_abandoned() {
        let (watcher, (sender, receiver)) = (Arc::default(), channel());
        let together = Watcher::reserve(&watcher).unwrap();
        [Panics::Never, Panics::Always, Panics::Never]
            .iter()
            .for_each(|panics| add(&watcher, *panics, &sender));
        drop(together);
        add(&watcher, Panics::Never, &sender);
        for _ in 0..3 {
            assert_eq!(receiver.recv_timeout(PATIENCE), Ok(None));
        }
    }
}
