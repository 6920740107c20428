// SPDX-License-Identifier: Apache-2.0
//! A run that is reserved: the engine that gets it prepares what can fail, and then starts it.

use std::sync::Arc;
use std::time::Instant;

use super::completion::{Account, Completion};
use super::deadline::{Deadlines, Reservation};
use super::{ExpectedEpochs, Life, Run, RunHolds, Verify};
use crate::base::{Result, log};

/// The right to start a run. If it is dropped, no run has begun: the claim of the completion ends, and nothing is reported.
pub struct Ticket {
    run: Run,
    account: Account,
    /// The place of its deadline, which is counted from the submission.
    deadline: Option<(Reservation, Instant)>,
}

impl Ticket {
    /// For a completion that was claimed; the claim ends when the run is over, or with the ticket. Fails if no thread can watch the
    /// deadline.
    pub fn new(completion: Arc<Completion>, account: Account, held: RunHolds) -> Result<Self> {
        let run = Run::reserved(completion, held, account.limit.is_some());
        let deadline = match &account.limit {
            Some(limit) => {
                let reservation = Deadlines::get().reserve()?;
                Instant::now().checked_add(limit.after).map(|at| (reservation, at))
            }
            None => None,
        };
        Ok(Self { run, account, deadline })
    }

    /// Makes the run check the moved blocks before it ends.
    pub fn verified_by(mut self, verification: Arc<dyn Verify>) -> Self {
        self.run.verification = Some(verification);
        self
    }

    /// Makes the run fail if a block of the source does not have its expected epoch.
    pub fn expecting(mut self, epochs: Arc<ExpectedEpochs>) -> Self {
        self.run.epochs = Some(epochs);
        self
    }

    /// Starts and ends the run if a block has not its expected epoch already, so that nothing is copied.
    pub fn unless_stale(self) -> Option<Self> {
        let local = self.run.epochs.as_ref().filter(|epochs| !epochs.is_remote());
        let Some(Err(stale)) = local.map(|epochs| epochs.check()) else { return Some(self) };
        self.start().end(Err(stale));
        None
    }

    /// Starts the run: from now on it is in flight, for all threads, and its end is reported.
    pub fn start(self) -> Run {
        let Self { mut run, account, deadline } = self;
        log!(Debug, "transfer {} submitted", run.completion.log_id());
        run.completion.begin(account, deadline);
        run.life = Life::Started;
        run
    }
}

#[cfg(test)]
impl Ticket {
    /// A ticket for a run of no objects.
    pub fn unheld(completion: &Arc<Completion>, account: Account) -> Self {
        assert!(completion.claim(), "a run is in flight");
        Self::new(completion.clone(), account, RunHolds::default()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::Status;
    use crate::run::completion::Limit;
    use crate::run::queue::Queue;

    fn statuses(queue: &Queue) -> Vec<Option<Status>> {
        let mut statuses = Vec::new();
        queue.poll(4, |entry| statuses.push(entry.status));
        statuses
    }

    #[test]
    fn a_ticket_that_is_dropped_leaves_the_run_before() {
        let queue = Queue::create().unwrap();
        let completion = Arc::new(Completion::new(3, Some(queue.clone())));
        drop(Ticket::unheld(&completion, Account::default()));
        assert!(!completion.is_claimed() && !completion.was_run());
        Ticket::unheld(&completion, Account::default()).start().end(Ok(()));
        assert_eq!(statuses(&queue), [None]);

        let ticket = Ticket::unheld(&completion, Account::default());
        assert!(!completion.claim(), "it has the claim");
        assert_eq!((completion.poll().unwrap(), completion.moved().unwrap()), (Some(()), 3));
        drop(ticket);
        assert!(!completion.is_claimed());
        assert_eq!((completion.poll().unwrap(), completion.moved().unwrap()), (Some(()), 3));
        assert_eq!(statuses(&queue), []);
    }

    /// The engine may block before the call that submits the run returns.
    #[test]
    fn a_deadline_is_watched_while_the_engine_starts_the_run() {
        let completion = Arc::new(Completion::new(1, None));
        let limit = Limit { after: Duration::from_millis(1), what: "it".into(), advice: String::new() };
        let account = Account { limit: Some(Arc::new(limit)), ..Account::default() };
        let run = Ticket::unheld(&completion, account).start();
        let patience = Instant::now() + Duration::from_secs(20);
        assert_eq!(completion.wait(Some(patience)).unwrap_err().status(), Status::TimedOut);
        assert!(run.is_cancelled() && run.is_reported() && completion.is_claimed());
        drop(run);
        assert!(!completion.is_claimed());
    }
}
