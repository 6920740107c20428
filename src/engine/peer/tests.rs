// SPDX-License-Identifier: Apache-2.0
//! Runs that an agent does not complete.
#![forbid(unsafe_code)]

use std::any::Any;
use std::sync::Arc;

use super::peer_run::NixlRun;
use super::*;
use crate::base::sync::Mutex;
use crate::layout::{AllocationConfig, Dimensions, LayoutKind};
use crate::nixl::panic_in_step;
use crate::plan::{BlockPair, Wanted};
use crate::region::SystemConfig;
use crate::run::completion::{Account, Completion};
use crate::run::queue::Queue;
use crate::run::steps::PartSequence;
use crate::run::{RunHolds, Start, Steps};

fn account() -> Account {
    Account { bytes: 64, user_data: 7, ..Account::default() }
}

fn layout() -> Arc<Layout> {
    let dimensions = Dimensions {
        num_blocks: 1,
        num_layers: 1,
        outer_dim: 1,
        page_size: 1,
        inner_dim: 64,
        dtype_width: 1,
        alignment: 1,
        num_heads: None,
    };
    let memory = AllocationConfig::System(SystemConfig::default());
    Layout::allocate(dimensions, LayoutKind::FullyContiguous, memory).unwrap()
}

/// A transfer of one block.
fn a_move(agent: Arc<Agent>, local: Arc<Layout>, remote: Arc<Layout>) -> NixlMove {
    let pairs = [BlockPair { source: 0, destination: 0 }];
    let plan = Plan::once(&remote, &local, &pairs, Wanted::default()).unwrap();
    let request_plan = RequestPlan::new([&local, &remote], true, plan);
    let prepared = PreparedRequests::new(TransferPath::NixlRead, agent, request_plan, None, None);
    NixlMove { shared: Arc::new(prepared), candidates: Vec::new() }
}

#[test]
fn after_a_step_that_panics_memory_is_kept_and_no_run_begins() {
    let (agent, _commands) = Agent::unattended();
    let (local, remote) = (layout(), layout());
    let layouts = [Arc::downgrade(&local), Arc::downgrade(&remote)];
    let moved = a_move(agent, local, remote);
    let completion = Arc::new(Completion::new(1, None));
    let run = Run::start(completion.clone(), account(), Default::default());
    assert!(moved.ensure_usable().is_ok());
    panic_in_step(Box::new(NixlRun::new(moved.shared.clone(), run)));
    let error = completion.poll().unwrap_err();
    assert_eq!(error.status(), Status::Panic);
    assert!(error.message().contains("deliberate"), "{error}");
    assert_eq!(moved.ensure_usable().unwrap_err().status(), Status::Panic);
    drop(moved);
    assert!(layouts.iter().all(|layout| layout.upgrade().is_some()));
}

/// Submits a transfer with an agent whose thread has ended.
fn fails_to_submit(completion: &Arc<Completion>, parts: usize) {
    let (agent, commands) = Agent::unattended();
    drop(commands);
    let (local, remote) = (layout(), layout());
    let part = || a_move(agent.clone(), local.clone(), remote.clone());
    let moves = PartSequence::new((0..parts).map(|_| part()).collect());
    assert!(completion.claim());
    let held = RunHolds { layouts: Some([remote.clone(), local.clone()]), ..RunHolds::default() };
    let holders = Arc::strong_count(&local);
    let error = moves.start(Run::start(completion.clone(), account(), held)).unwrap_err();
    assert!(error.message().contains("the agent's thread ended"), "{error}");
    assert!(!completion.is_claimed(), "no other run can be submitted");
    assert_eq!(Arc::strong_count(&local), holders - 1, "the run still holds its layouts");
}

fn completions(queue: &Queue) -> Vec<Option<Status>> {
    let mut statuses = Vec::new();
    queue.poll(4, |entry| statuses.push(entry.status));
    statuses
}

#[test]
fn a_failed_submit_reports_no_completion() {
    for parts in [1, 2] {
        let queue = Queue::create().unwrap();
        let completion = Arc::new(Completion::new(1, Some(queue.clone())));
        fails_to_submit(&completion, parts);
        assert_eq!(completions(&queue), []);
        assert_eq!(completion.poll().unwrap_err().status(), Status::InvalidState, "it was never submitted");
        assert_eq!(completion.wait(None).unwrap_err().status(), Status::InvalidState);

        Run::start(completion.clone(), account(), RunHolds::default()).end(Ok(()));
        assert_eq!(completions(&queue), [None]);
        fails_to_submit(&completion, parts);
        assert_eq!(completions(&queue), []);
        assert_eq!(
            (completion.poll().unwrap(), completion.moved().unwrap()),
            (Some(()), 1),
            "the run before"
        );
    }
}

#[test]
fn a_later_part_that_cannot_be_started_is_reported_with_its_cause() {
    let (agent, commands) = Agent::unattended();
    let (local, remote) = (layout(), layout());
    let part = || a_move(agent.clone(), local.clone(), remote.clone());
    let queue = Queue::create().unwrap();
    let completion = Arc::new(Completion::new(2, Some(queue.clone())));
    let run = Run::start(completion.clone(), account(), RunHolds::default());
    let first_of_two = FirstEnds { next: part(), left_by: Mutex::new(Some(Box::new(commands))) };
    run.in_steps(Arc::new(first_of_two)).unwrap();
    assert_eq!(completions(&queue), [Some(Status::Panic)]);
    let error = completion.poll().unwrap_err();
    assert!(error.message().contains("the agent's thread ended"), "{error}");
}

/// Two parts. The first ends at once, after the agent's thread has.
struct FirstEnds {
    next: NixlMove,
    left_by: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Steps for FirstEnds {
    fn count(&self) -> u64 {
        2
    }

    fn start(self: Arc<Self>, part: u64, run: Run) -> Result<()> {
        if part == 1 {
            return self.next.prepare_start(run).start();
        }
        drop(self.left_by.lock().take());
        run.end(Ok(()));
        Ok(())
    }
}
