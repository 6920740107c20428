// SPDX-License-Identifier: Apache-2.0
//! How long a call waits for kernels that are not loaded: for the work of the device, for the compilation, and for the thread that
//! does both.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::quiet::PATIENCE;

/// How long a call that has a method without kernels waits for what it chooses by, and then for the kernels of its choice. With the turns
/// it is less than 50 ms.
const CHOICE: Duration = Duration::from_millis(30);
const CHOSEN: Duration = Duration::from_millis(8);
/// How long a call that needs a kernel waits for its compilation, which waits for no work of the device. It takes 0.1 to 0.4 s once on
/// a machine, and some milliseconds in later processes.
const COMPILATION: Duration = Duration::from_secs(10);
/// How often callers look for a result that is late, and how long they sleep each time. Turns are counted rather than time: on busy
/// processors the thread that loads needs turns, too.
const TURNS: u32 = 10;
/// The same for callers that need the kernel, in each phase.
const TURNS_OF_NEED: u32 = 50;
const TURN: Duration = Duration::from_millis(1);

/// What the thread that loads a kernel does, and since when.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// It has not begun.
    Starting,
    /// It waits for the work of the device.
    Asking(Instant),
    /// It compiles.
    Compiling(Instant),
    /// It loads the code. This takes long only if the device got other work after it was asked.
    Loading(Instant),
}

/// The patience of a call, which may need several kernels.
pub struct Patience {
    /// When it began, without the time that threads took to start.
    begun: Cell<Instant>,
    duration: Duration,
    /// It has no method without kernels. Otherwise the duration is for all that it waits for.
    is_needed: bool,
    /// The turns that it has slept, in a phase if it needs the kernel.
    turns: Cell<(Option<Instant>, u32)>,
}

impl Patience {
    /// Of a call that has no method without kernels: so long for work of the device, and 10 s for a compilation.
    pub fn needed(for_work: Duration) -> Self {
        Self::new(for_work, true)
    }

    /// Of a call that has another method: 30 ms in all, and at most [`PATIENCE`] for each kernel.
    pub fn optional() -> Self {
        Self::new(CHOICE, false)
    }

    /// The call has chosen, and has at least some milliseconds for kernels from here on.
    pub fn has_chosen(&mut self) {
        self.duration = self.duration.max(self.begun.get().elapsed() + CHOSEN);
    }

    /// Of a call that waits for nothing, but has the kernel loaded for later ones.
    pub fn none() -> Self {
        Self::new(Duration::ZERO, false)
    }

    fn new(duration: Duration, is_needed: bool) -> Self {
        Self { begun: Cell::new(Instant::now()), duration, is_needed, turns: Cell::new((None, 0)) }
    }

    /// What is left of the duration.
    pub fn left(&self) -> Duration {
        self.duration.saturating_sub(self.begun.get().elapsed())
    }

    pub(super) fn is_none(&self) -> bool {
        self.duration.is_zero()
    }

    pub(super) fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// Whether it does not wait for work that has run for longer than [`PATIENCE`].
    pub(super) fn is_short(&self) -> bool {
        !self.is_needed || self.duration <= PATIENCE
    }

    /// Until when the device may be busy, for a kernel that was asked for at a time.
    pub(super) fn for_work(&self, asked: Instant) -> Instant {
        match self.is_needed {
            true => asked + self.duration,
            false => (self.begun.get() + self.duration).min(asked + PATIENCE),
        }
    }

    /// The thread has started, for which neither the device nor the driver is waited for, but a processor: the time does not count.
    pub(super) fn has_started(&self, asked: &mut Instant) {
        let late = asked.elapsed();
        *asked += late;
        self.begun.set(self.begun.get() + late);
    }

    /// How long the caller sleeps, who asked for a kernel at a time; `None` if it waits no longer.
    pub(super) fn pause(&self, asked: Instant, phase: Phase) -> Option<Duration> {
        if self.is_none() {
            return None;
        }
        let (since, long) = match phase {
            Phase::Starting => (asked, asked + COMPILATION),
            Phase::Asking(since) | Phase::Loading(since) => {
                (since, self.for_work(asked).max(since + PATIENCE))
            }
            Phase::Compiling(since) => (since, since + COMPILATION),
        };
        let is_long = self.is_needed || matches!(phase, Phase::Starting);
        let until = if is_long { long } else { self.for_work(asked).min(since + PATIENCE) };
        // Who comes later does not wait for it.
        let is_known_to_be_long = !self.is_needed
            && matches!(phase, Phase::Compiling(_))
            && since.elapsed() > PATIENCE + TURN * TURNS;
        let left = until.checked_duration_since(Instant::now());
        left.or_else(|| (!is_known_to_be_long && self.takes_turn(since)).then_some(TURN))
    }

    fn takes_turn(&self, since: Instant) -> bool {
        let (counted, count) = self.turns.get();
        let slept = if self.is_needed && counted != Some(since) { 0 } else { count };
        self.turns.set((Some(since), slept + 1));
        slept < if self.is_needed { TURNS_OF_NEED } else { TURNS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(milliseconds: u64) -> Instant {
        Instant::now().checked_sub(Duration::from_millis(milliseconds)).unwrap()
    }

    fn begun(patience: Patience, at: Instant) -> Patience {
        Patience { begun: Cell::new(at), ..patience }
    }

    #[test]
    fn a_choice_waits_for_all_kernels_together() {
        let now = Instant::now();
        let fresh = begun(Patience::optional(), now);
        assert_eq!(fresh.for_work(now), now + PATIENCE);
        assert!(fresh.pause(now, Phase::Compiling(now)).is_none_or(|left| left <= PATIENCE));
        let later = begun(Patience::optional(), ago(29));
        assert!(later.pause(now, Phase::Compiling(now)).is_none_or(|left| left <= Duration::from_millis(1)));
        let mut ended = begun(Patience::optional(), ago(30));
        assert!(ended.left().is_zero());
        assert_eq!(ended.pause(now, Phase::Compiling(now)), Some(TURN));
        let mut at_once = begun(Patience::optional(), now);
        at_once.has_chosen();
        assert_eq!(at_once.for_work(now), now + PATIENCE);
        ended.has_chosen();
        assert!(ended.for_work(now) <= Instant::now() + CHOSEN);
        assert!(ended.for_work(now) >= now + CHOSEN);
    }

    #[test]
    fn a_choice_waits_for_no_compilation_that_is_known_to_be_long() {
        let patience = Patience::optional();
        assert!(patience.pause(Instant::now(), Phase::Compiling(ago(31))).is_none());
        let needed = Patience::needed(PATIENCE);
        assert!(needed.pause(Instant::now(), Phase::Compiling(ago(31))).unwrap() > Duration::from_secs(9));
    }

    /// Whatever the number of kernels and phases.
    #[test]
    fn a_choice_has_its_turns_once() {
        let patience = begun(Patience::optional(), ago(100));
        let phases = [Phase::Asking(ago(55)), Phase::Asking(ago(50)), Phase::Loading(ago(40))];
        let slept = (0..100).filter(|turn| patience.pause(ago(60), phases[turn % 3]).is_some()).count();
        assert_eq!(slept, TURNS as usize);
    }

    #[test]
    fn the_time_that_a_thread_takes_to_start_does_not_count() {
        let mut asked = ago(500);
        let patience = begun(Patience::optional(), asked);
        assert!(patience.pause(asked, Phase::Starting).is_some_and(|left| left > PATIENCE));
        patience.has_started(&mut asked);
        assert!(asked >= ago(100) && patience.for_work(asked) == asked + PATIENCE);
    }

    #[test]
    fn who_needs_a_kernel_has_turns_in_each_phase() {
        let patience = Patience::needed(Duration::from_millis(1));
        for phase in [Phase::Asking(ago(50)), Phase::Loading(ago(40))] {
            let slept = (0..100).filter(|_| patience.pause(ago(60), phase).is_some()).count();
            assert_eq!(slept, TURNS_OF_NEED as usize);
        }
    }

    #[test]
    fn who_waits_for_nothing_does_not_sleep() {
        let patience = Patience::none();
        let now = Instant::now();
        let phases = [Phase::Starting, Phase::Asking(now), Phase::Compiling(now), Phase::Loading(now)];
        assert!(phases.iter().all(|phase| patience.pause(now, *phase).is_none()));
    }
}
