// SPDX-License-Identifier: Apache-2.0
//! Work that may wait for a file system, by a deadline of the caller.

use std::sync::Arc;
use std::time::Instant;

use crate::base::error::{Result, fail};
use crate::base::guarded::guarded;
use crate::base::handoff::{Taken, handoff};
use crate::base::thread_pool::Pool;
use crate::base::turns::Turns;

/// Does the work of an object on a thread of its own, and waits for it until the deadline; without one, does it here. Work that is late goes
/// on, and its value is dropped on its thread. If earlier work has not ended by then, it does not begin: so a file system that does not
/// respond has one thread of each object, and not one of each call.
pub fn by_deadline<T: Send + 'static>(
    turns: &Arc<Turns<()>>,
    deadline: Option<Instant>,
    doing: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if deadline.is_none() {
        return work();
    }
    let Some(turn) = turns.take(&(), deadline) else {
        fail!(
            TimedOut,
            "{doing}: an earlier call still waits for the file system, and this one has done nothing. Find what delays it"
        );
    };
    let work = move || {
        let _until_it_ends = turn;
        work()
    };
    let (giver, taker) = handoff();
    Pool::services().run_once_alone(move || drop(giver.give(guarded(work).and_then(|done| done))))?;
    match taker.take(deadline) {
        Taken::Value(done) => done,
        Taken::Gone => fail!(Panic, "{doing}: the thread ended before its work"),
        Taken::TooLate => fail!(
            TimedOut,
            "{doing}: the file system has not responded in time; the work goes on. Increase timeout_ns, or find what delays it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::base::Status;

    #[test]
    fn late_work_goes_on_and_the_caller_does_not_wait_for_it() {
        let ((release, held), (end, ended), turns) = (channel::<()>(), channel(), Arc::default());
        let late = by_deadline(&turns, Some(Instant::now()), "wait", move || {
            held.recv().unwrap();
            end.send(7).unwrap();
            Ok(())
        });
        assert_eq!(late.unwrap_err().status(), Status::TimedOut);
        for _ in 0..100 {
            let behind =
                by_deadline(&turns, Some(Instant::now()), "wait", || -> Result<()> { panic!("it began") });
            assert!(behind.unwrap_err().message().contains("has done nothing"));
        }
        release.send(()).unwrap();
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(7));
        let later = Some(Instant::now() + Duration::from_secs(60));
        assert_eq!(by_deadline(&turns, later, "add", || Ok(2)).unwrap(), 2);
    }

    #[test]
    fn the_result_is_that_of_the_work() {
        let (later, turns) = (Some(Instant::now() + Duration::from_secs(60)), Arc::default());
        assert_eq!(by_deadline(&turns, later, "add", || Ok(1 + 1)).unwrap(), 2);
        let panicked = by_deadline(&turns, later, "panic", || -> Result<()> { panic!("deliberate") });
        assert_eq!(panicked.unwrap_err().status(), Status::Panic);
        assert_eq!(by_deadline(&turns, later, "add", || Ok(3)).unwrap(), 3);
    }
}
