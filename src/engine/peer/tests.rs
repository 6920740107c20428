// SPDX-License-Identifier: Apache-2.0
//! Runs that an agent does not complete.

use std::any::Any;
use std::sync::Arc;

use super::peer_run::NixlRun;
use super::*;
use crate::base::Mutex;
use crate::layout::{Arrangement, Dimensions};
use crate::nixl::panic_in_step;
use crate::plan::{BlockPair, Wanted};
use crate::run::queue::Queue;
use crate::run::{Account, Completion, PartSequence, RunHolds, Steps, Ticket};

fn account() -> Account {
    Account { bytes: 64, user_data: 7, ..Account::default() }
}

fn layout() -> Arc<Layout> {
    let dimensions = Dimensions { inner_dim: 64, ..Dimensions::ONE };
    Layout::in_host(dimensions, Arrangement::FULLY_CONTIGUOUS)
}

/// A transfer of one block.
fn a_move(agent: Arc<Agent>, local: Arc<Layout>, remote: Arc<Layout>) -> NixlMove {
    let pairs = [BlockPair { source: 0, destination: 0 }];
    let plan = Plan::once(&remote, &local, &pairs, Wanted::default()).unwrap();
    let request_plan = RequestPlan::new([&local, &remote], true, plan);
    let prepared = PreparedRequests::new(TransferMethod::Nixl, agent, request_plan, None, None);
    NixlMove { shared: Arc::new(prepared), candidates: Vec::new() }
}

#[test]
fn after_a_step_that_panics_memory_is_kept_and_no_run_begins() {
    let (agent, _commands) = Agent::unattended();
    let (local, remote) = (layout(), layout());
    let layouts = [Arc::downgrade(&local), Arc::downgrade(&remote)];
    let moved = a_move(agent, local, remote);
    let completion = Arc::new(Completion::new(1, None));
    let run = Ticket::unheld(&completion, account()).start();
    assert!(moved.shared.ensure_usable().is_ok());
    panic_in_step(Box::new(NixlRun::new(moved.shared.clone(), run)));
    completion.poll().unwrap_err().assert_is(Status::Panic, "deliberate");
    assert_eq!(moved.shared.ensure_usable().unwrap_err().status(), Status::Panic);
    drop(moved);
    assert!(layouts.iter().all(|layout| layout.upgrade().is_some()));
}

fn completions(queue: &Queue) -> Vec<Option<Status>> {
    let mut statuses = Vec::new();
    queue.poll(4, |entry| statuses.push(entry.status));
    statuses
}

#[test]
fn a_run_of_an_agent_whose_thread_has_ended_fails_with_that() {
    for parts in [1, 2] {
        let (agent, commands) = Agent::unattended();
        drop(commands);
        let (local, remote) = (layout(), layout());
        let part = || a_move(agent.clone(), local.clone(), remote.clone());
        let moves = PartSequence::new((0..parts).map(|_| part()).collect());
        let queue = Queue::create().unwrap();
        let completion = Arc::new(Completion::new(1, Some(queue.clone())));
        assert!(completion.claim());
        let held = RunHolds { layouts: Some([remote.clone(), local.clone()]), ..RunHolds::default() };
        let holders = Arc::strong_count(&local);
        moves.submit(Ticket::new(completion.clone(), account(), held).unwrap()).unwrap();
        assert_eq!(completions(&queue), [Some(Status::Panic)]);
        let error = completion.poll().unwrap_err();
        assert!(error.message().contains("the agent's thread ended"), "{error}");
        assert!(!completion.is_claimed(), "another run can be submitted");
        assert_eq!(Arc::strong_count(&local), holders - 1, "the run still holds its layouts");
    }
}

#[test]
fn a_later_part_that_cannot_be_started_is_reported_with_its_cause() {
    let (agent, commands) = Agent::unattended();
    let (local, remote) = (layout(), layout());
    let part = || a_move(agent.clone(), local.clone(), remote.clone());
    let queue = Queue::create().unwrap();
    let completion = Arc::new(Completion::new(2, Some(queue.clone())));
    let run = Ticket::unheld(&completion, account()).start();
    let first_of_two = FirstEnds { next: part(), left_by: Mutex::new(Some(Box::new(commands))) };
    run.in_steps(Arc::new(first_of_two));
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

    fn start(self: Arc<Self>, part: u64, run: Run) {
        if part == 1 {
            return self.next.prepare_start(run)();
        }
        drop(self.left_by.lock().take());
        run.end(Ok(()));
    }
}
