// SPDX-License-Identifier: Apache-2.0
//! Runs that the driver is at, and those that wait for a stream, a slot or staging memory: started and watched by one
//! thread while there are any.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::super::device::need::Need;
use super::super::device::state::DeviceState;
use crate::error::{Error, Result};
use crate::guarded::guarded;
use crate::log::log;
use crate::sync::{Mutex, MutexGuard};
use crate::transfer::run::threads::{Pool, Shared};

/// What is in use, and on which device.
pub type Full = HashSet<(*const DeviceState, Need)>;

/// Something that is watched until it is over.
pub trait Watched: Send + Sync {
    /// Starts it where it waits for nothing that is in use already; answers whether it began. What it goes on waiting
    /// for is added.
    fn start_unless(self: Arc<Self>, full: &mut Full) -> bool;
    /// Looks whether it is over.
    fn is_over(&self) -> bool;
    /// Ends it after a panic, whatever it is at.
    fn give_up(&self, error: &Error);
}

/// All runs of this process, watched by one thread while there are any.
#[derive(Default)]
pub struct Flights(Mutex<Watch>);

#[derive(Default)]
struct Watch {
    new: Vec<Arc<dyn Watched>>,
    /// The thread runs.
    is_watched: bool,
    /// Seats of runs to come.
    seats: usize,
}

/// A promise that a run that is added will be watched: the thread runs while there are seats.
#[must_use]
pub struct Seat(Arc<Flights>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.lock().seats -= 1;
    }
}

/// How long the thread polls after the last run came or ended before it begins to sleep in between.
const SPIN: Duration = Duration::from_micros(200);
/// The same where threads wake late.
const MOST_SPIN: Duration = Duration::from_millis(2);
const SLEEP: Duration = Duration::from_micros(20);
/// How long it stays with nothing to watch: to wake a thread that has gone takes several times such a sleep.
const STAY: Duration = Duration::from_millis(5);

impl Flights {
    /// Those of this process.
    pub fn get() -> &'static Arc<Self> {
        static FLIGHTS: OnceCell<Arc<Flights>> = OnceCell::new();
        FLIGHTS.get_or_init(Arc::default)
    }

    /// Reserves a seat for a run. Before the run is submitted, because nothing of it may begin if no thread can watch it.
    pub fn reserve(self: &Arc<Self>) -> Result<Seat> {
        let mut watch = self.lock();
        if !watch.is_watched {
            // Within the lock: other runs must not count on a thread that could not be started.
            Pool::services().run_alone(self.clone())?;
            watch.is_watched = true;
        }
        watch.seats += 1;
        drop(watch);
        Ok(Seat(self.clone()))
    }

    /// Moves what was added to `flights`, and returns whether there was anything; `None` when the thread may go. The list
    /// of what is added keeps its memory, so that adding to it again allocates none.
    fn take_new(&self, flights: &mut Vec<Arc<dyn Watched>>, idle: bool) -> Option<bool> {
        let mut watch = self.lock();
        if watch.new.is_empty() && watch.seats == 0 && idle {
            watch.is_watched = false;
            return None;
        }
        let has_new = !watch.new.is_empty();
        flights.append(&mut watch.new);
        Some(has_new)
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock()
    }
}

impl Seat {
    /// Has a run started, if it is not, and watched until it is over.
    pub fn add(self, flying: Arc<dyn Watched>) {
        self.0.lock().new.push(flying);
    }
}

impl Shared for Flights {
    fn run(&self) {
        let mut flights: Vec<Arc<dyn Watched>> = Vec::new();
        let mut rest = Rest::new();
        wake_precisely();
        loop {
            let idle = flights.is_empty() && rest.quiet() > STAY;
            // What has come may be over soon, whenever something was last.
            let Some(mut progressed) = self.take_new(&mut flights, idle) else { return };
            let before = flights.len();
            progressed |= start_all(&mut flights);
            flights.retain(|flying| !step(flying, || flying.is_over()).unwrap_or(true));
            progressed |= flights.len() < before;
            rest.after(progressed);
        }
    }
}

/// What the thread does between two looks: it polls for a while after something has come or ended, and then sleeps in
/// between. How long depends on the machine: where a thread wakes late, as on a core that has gone to sleep with it, an
/// end would be told late by more than the run took.
struct Rest {
    progress: Instant,
    /// How much longer the last sleep was than asked for.
    late: Duration,
}

impl Rest {
    fn new() -> Self {
        Self { progress: Instant::now(), late: Duration::ZERO }
    }

    /// How long nothing has come or ended.
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

    /// So long that sleeping makes the end of a run late by a tenth of its time at most.
    fn spin(&self) -> Duration {
        (10 * self.late).clamp(SPIN, MOST_SPIN)
    }
}

/// Starts what can be, in the order of submission: nobody overtakes one that waits for the same. Answers whether any began.
fn start_all(flights: &mut Vec<Arc<dyn Watched>>) -> bool {
    let mut full = Full::new();
    let mut any = false;
    flights.retain(|flying| {
        let started = step(flying, || flying.clone().start_unless(&mut full));
        any |= started == Some(true);
        started.is_some()
    });
    any
}

/// A step of a run. One that panics ends that run, and none of the others; then there is no answer.
fn step<R>(flying: &Arc<dyn Watched>, step: impl FnOnce() -> R) -> Option<R> {
    guarded(step)
        .inspect_err(|error| {
            log!(Error, "on the thread that watches copies: {error}");
            flying.give_up(error);
        })
        .ok()
}

/// Has this thread, which is the library's own, wake when it should: the kernel saves wake-ups by 50 µs otherwise.
fn wake_precisely() {
    const SLACK_NANOSECONDS: libc::c_ulong = 1000;
    // SAFETY: changes nothing but the calling thread's timer slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NANOSECONDS) };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::error::Status;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A run that panics when it is looked at, or is over then.
    struct Fake {
        panics: bool,
        looks: AtomicUsize,
        tell: Mutex<Sender<Option<Status>>>,
    }

    impl Watched for Fake {
        fn start_unless(self: Arc<Self>, _: &mut Full) -> bool {
            false
        }

        fn is_over(&self) -> bool {
            assert!(!self.panics, "deliberate");
            let is_over = self.looks.fetch_add(1, Ordering::Relaxed) > 3;
            if is_over {
                self.tell.lock().send(None).unwrap();
            }
            is_over
        }

        fn give_up(&self, error: &Error) {
            self.tell.lock().send(Some(error.status())).unwrap();
        }
    }

    #[test]
    fn a_thread_that_wakes_late_polls_for_longer() {
        let spin = |late| Rest { progress: Instant::now(), late }.spin();
        assert_eq!(spin(Duration::ZERO), SPIN);
        assert_eq!(spin(Duration::from_micros(100)), Duration::from_millis(1));
        assert_eq!(spin(Duration::from_secs(1)), MOST_SPIN, "it was kept from the CPU");
    }

    #[test]
    fn a_panic_ends_one_run_and_the_others_are_watched_on() {
        let flights = Arc::new(Flights::default());
        let (tell, told) = channel();
        for panics in [false, true, false] {
            let (looks, tell) = (AtomicUsize::new(0), Mutex::new(tell.clone()));
            flights.reserve().unwrap().add(Arc::new(Fake { panics, looks, tell }));
        }
        let mut ends: Vec<_> = (0..3).map(|_| told.recv_timeout(PATIENCE).unwrap()).collect();
        ends.sort_by_key(|end| end.is_some());
        assert_eq!(ends, [None, None, Some(Status::Panic)]);
    }
}
