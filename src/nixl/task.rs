// SPDX-License-Identifier: Apache-2.0
//! Tasks: what takes many steps on the agent's thread, or on the thread that begins a short one.

use std::time::{Duration, Instant};

use super::state::AgentState;
use crate::base::Error;

/// The result of one step of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStep {
    /// It made progress: call it again at once.
    Progressed,
    /// It waits for hardware or a peer that responds within microseconds.
    InFlight,
    /// It waits for something that may take long.
    Waiting,
    /// It is complete: nothing follows but [`AgentTask::end`].
    Done,
}

/// Something that takes many steps on the agent's thread.
pub trait AgentTask: Send {
    fn step(&mut self, state: &mut AgentState) -> TaskStep;

    /// How often it needs a look for messages of peers, if it handles any. One look before the steps of a round is that of all
    /// tasks.
    fn look_interval(&self) -> Option<Duration> {
        None
    }

    /// Whether it only waits for messages of peers. Then any thread that has the agent may take a step of it.
    fn only_listens(&self) -> bool {
        false
    }

    /// Ends the work, whose last step has returned [`TaskStep::Done`].
    fn end(self: Box<Self>) {}

    /// Reports that the agent's thread has ended, so that the work was never begun. Whatever starts the work gets the same
    /// error; a run ends with it.
    fn not_begun(&mut self, _error: &Error) {}

    /// Reports that a step has panicked. It is not called again, and it is never dropped: NIXL may still use the memory
    /// that it holds.
    fn abandon(&mut self, error: Error);
}

/// A step that takes this long has moved bytes. One that only looks whether others have takes 1 to 2 µs.
pub(super) const MOVING: Duration = Duration::from_micros(5);
/// The consecutive steps that move nothing, after which the thread that has begun a task leaves it to the agent's thread: as long
/// as the wake-up of that thread takes the caller.
pub(super) const QUIET_STEPS: usize = 3;
/// How long the thread that has begun a task takes steps for it. UCX copies 1 MiB of a peer in 0.1 to 0.4 ms, depending on the
/// caches.
const LONGEST_BEGIN: Duration = Duration::from_millis(1);
/// The largest task that the thread that begins it may execute, in bytes and descriptors: UCX makes a system call for each
/// descriptor, and copies this much in less than [`LONGEST_BEGIN`].
const SHORT: (u64, u64) = (1 << 20, 128);

/// Whether a task with a peer is short enough for [`super::Agent::begin`]: a wake-up of the agent's thread takes 10 to 50 µs.
pub fn is_short(bytes: u64, descriptors: u64) -> bool {
    bytes <= SHORT.0 && descriptors <= SHORT.1
}

/// How long the thread that posts executes a run itself: as long as its steps progress or move bytes.
#[derive(Default)]
pub struct Pace {
    /// The end of the first step, which is the only one of most runs.
    begun: Option<Instant>,
    /// From then to the end of the last step.
    spent: Duration,
    /// The last steps that have moved nothing.
    quiet: usize,
}

impl Pace {
    /// Whether the thread takes another step after one with this result.
    pub fn goes_on_after(&mut self, step: TaskStep) -> bool {
        let now = Instant::now();
        let spent = now - *self.begun.get_or_insert(now);
        let has_moved = step == TaskStep::Progressed || spent.saturating_sub(self.spent) >= MOVING;
        (self.spent, self.quiet) = (spent, if has_moved { 0 } else { self.quiet + 1 });
        step != TaskStep::Waiting && self.quiet < QUIET_STEPS && spent <= LONGEST_BEGIN
    }
}
