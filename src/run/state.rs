// SPDX-License-Identifier: Apache-2.0
//! Whether a transfer may be started, and how its last run went, in one word: a thread that sees the end of a run can start the
//! next one.

use crate::base::atomic::{AtomicU32, Ordering};

/// How the last run went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There was none.
    NeverRun,
    Running,
    /// It has failed, or was cancelled.
    Failed,
    /// It has succeeded, and its completion is in the queue.
    Succeeded,
}

/// Whether a run uses its memory after its end was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// It does not.
    Over,
    /// Until it is over.
    GoesOn,
    /// Perhaps for ever: nothing will detect the end of its work.
    Unknown,
}

/// The phase, and whether a run has claimed the transfer.
pub struct RunState(AtomicU32);

const PHASES: u32 = 3;
/// A run is in flight, or still uses its memory.
const CLAIMED: u32 = 4;

impl RunState {
    /// Never run.
    pub const fn new() -> Self {
        Self(AtomicU32::new(Phase::NeverRun as u32))
    }

    /// Claims the transfer for a run; false if another run has.
    pub fn claim(&self) -> bool {
        self.0.fetch_or(CLAIMED, Ordering::AcqRel) & CLAIMED == 0
    }

    /// Ends the claim; the phase is unchanged.
    pub fn unclaim(&self) {
        self.0.fetch_and(!CLAIMED, Ordering::Release);
    }

    pub fn is_claimed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLAIMED != 0
    }

    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) & PHASES {
            0 => Phase::NeverRun,
            1 => Phase::Running,
            2 => Phase::Failed,
            _ => Phase::Succeeded,
        }
    }

    /// Changes the phase, and ends the claim unless the run goes on. Only for the run that has the claim: a claim that another
    /// thread attempts at the same time fails, and changes nothing, so this needs no read-modify-write operation.
    pub fn enter(&self, phase: Phase, keeps_claim: bool) {
        let claim = if keeps_claim { CLAIMED } else { 0 };
        self.0.store(phase as u32 | claim, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_entered_with_or_without_the_claim() {
        let state = RunState::new();
        for phase in [Phase::NeverRun, Phase::Running, Phase::Failed, Phase::Succeeded] {
            assert!(state.claim() && !state.claim());
            state.enter(phase, true);
            assert_eq!((state.phase(), state.is_claimed()), (phase, true));
            state.enter(phase, false);
            assert_eq!((state.phase(), state.is_claimed()), (phase, false));
        }
        assert!(state.claim());
        state.unclaim();
        assert_eq!((state.phase(), state.is_claimed()), (Phase::Succeeded, false));
    }
}
