// SPDX-License-Identifier: Apache-2.0
//! When a run passes from one phase to the next, and how long each phase has taken.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// What a run reaches, in this order. A run that ends within the call that submits it reaches none of them before it is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// The first work is given to the driver, the kernel, or the thread that does it.
    Begun,
    /// The first request is posted to a peer.
    Gathered,
    /// All bytes have moved.
    Moved,
    /// The moved blocks are checked.
    Verified,
}

pub const MILESTONES: usize = 4;

/// What a run does, or waits for, before it reaches the next milestone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    Queued,
    Gathered,
    Moved,
    Verified,
    Completed,
}

impl RunPhase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Gathered => "gathered",
            Self::Moved => "moved",
            Self::Verified => "verified",
            Self::Completed => "completed",
        }
    }
}

/// The times of a run in nanoseconds of CLOCK_MONOTONIC. A milestone that was not reached is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    pub started: u64,
    pub reached: [u64; MILESTONES],
    pub duration: u64,
}

impl RunTimes {
    pub fn end(&self) -> u64 {
        self.started.saturating_add(self.duration)
    }

    /// The phases with when each has begun and ended, in order and without gaps. There are none if the run has reached no milestone,
    /// unless it has failed: then it has ended while it was queued.
    pub fn phases(&self, has_failed: bool) -> impl Iterator<Item = (RunPhase, u64, u64)> {
        const BEFORE: [RunPhase; MILESTONES] =
            [RunPhase::Queued, RunPhase::Gathered, RunPhase::Moved, RunPhase::Verified];
        let (mut phases, mut since) = ([None; MILESTONES + 1], self.started);
        for ((at, phase), slot) in self.reached.into_iter().zip(BEFORE).zip(&mut phases) {
            if at > 0 {
                // Threads read their clocks at slightly different times, and a run may be reported before all of it has ended.
                let until = at.clamp(since, self.end().max(since));
                *slot = Some((phase, since, until));
                since = until;
            }
        }
        let last = match self.reached.iter().rposition(|at| *at > 0) {
            None => has_failed.then_some(RunPhase::Queued),
            Some(last) if last < Milestone::Moved as usize => Some(RunPhase::Moved),
            Some(_) => Some(RunPhase::Completed),
        };
        phases[MILESTONES] = last.map(|phase| (phase, since, self.end().max(since)));
        phases.into_iter().flatten()
    }
}

/// The times of the run in flight, or of the last one. Any thread that works for the run notes what it reaches.
#[derive(Default)]
pub(super) struct RunClock {
    started: AtomicU64,
    reached: [AtomicU64; MILESTONES],
}

impl RunClock {
    /// Only for the run that has claimed the transfer.
    #[inline]
    pub fn begin(&self, started: u64) {
        self.started.store(started, Ordering::Relaxed);
        self.reached.iter().for_each(|at| at.store(0, Ordering::Relaxed));
    }

    /// Nanoseconds since the run began.
    #[inline]
    pub fn elapsed(&self) -> u64 {
        now().saturating_sub(self.started.load(Ordering::Relaxed))
    }

    /// Notes the first time that it is reached: later calls read no clock.
    #[inline]
    pub fn reach(&self, milestone: Milestone) {
        let at = &self.reached[milestone as usize];
        if at.load(Ordering::Relaxed) == 0 {
            // Another thread may have noted it meanwhile.
            let _ = at.compare_exchange(0, now(), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub fn has_reached(&self, milestone: Milestone) -> bool {
        self.reached[milestone as usize].load(Ordering::Relaxed) > 0
    }

    #[inline]
    pub fn times(&self, duration: u64) -> RunTimes {
        RunTimes {
            started: self.started.load(Ordering::Relaxed),
            reached: std::array::from_fn(|at| self.reached[at].load(Ordering::Relaxed)),
            duration,
        }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, which other tools have, too; never 0. Read without [`Instant`], whose checks take longer than the
/// rest of what a run notes.
///
/// [`Instant`]: std::time::Instant
#[inline]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RunPhase::{Completed, Gathered, Moved, Queued, Verified};
    use super::*;

    fn phases(reached: [u64; MILESTONES], has_failed: bool) -> Vec<(RunPhase, u64, u64)> {
        RunTimes { started: 100, reached, duration: 50 }.phases(has_failed).collect()
    }

    #[test]
    fn phases_follow_each_other_from_the_start_to_the_end() {
        assert_eq!(phases([0; 4], false), []);
        assert_eq!(phases([0; 4], true), [(Queued, 100, 150)]);
        assert_eq!(phases([110, 0, 0, 0], true), [(Queued, 100, 110), (Moved, 110, 150)]);
        assert_eq!(
            phases([110, 0, 140, 0], false),
            [(Queued, 100, 110), (Moved, 110, 140), (Completed, 140, 150)]
        );
        assert_eq!(
            phases([110, 115, 140, 148], false),
            [
                (Queued, 100, 110),
                (Gathered, 110, 115),
                (Moved, 115, 140),
                (Verified, 140, 148),
                (Completed, 148, 150)
            ]
        );
        // One that its submitting call has moved, and another thread has checked.
        assert_eq!(
            phases([0, 0, 120, 150], false),
            [(Moved, 100, 120), (Verified, 120, 150), (Completed, 150, 150)]
        );
    }

    #[test]
    fn milestones_out_of_order_are_brought_into_it() {
        assert_eq!(
            phases([90, 130, 120, 170], false),
            [
                (Queued, 100, 100),
                (Gathered, 100, 130),
                (Moved, 130, 130),
                (Verified, 130, 150),
                (Completed, 150, 150)
            ]
        );
    }

    #[test]
    fn a_milestone_is_noted_once_per_run() {
        let clock = RunClock::default();
        clock.begin(now());
        clock.reach(Milestone::Begun);
        let first = clock.times(0);
        while now() == first.reached[0] {}
        clock.reach(Milestone::Begun);
        assert_eq!(clock.times(0), first);
        assert!(first.reached[0] >= first.started && first.reached[1..] == [0; 3]);
        assert!(clock.has_reached(Milestone::Begun) && !clock.has_reached(Milestone::Moved));
        clock.begin(now());
        assert_eq!(clock.times(0).reached, [0; 4]);
    }

    #[test]
    fn times_are_those_of_the_monotonic_clock() {
        let time = || {
            let time = clock_gettime(ClockId::Monotonic);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
        };
        let (before, at, after) = (time(), now(), time());
        assert!(before <= at && at <= after, "{before} {at} {after}");
        let clock = RunClock::default();
        clock.begin(before);
        assert!(clock.elapsed() >= after - before);
    }
}
