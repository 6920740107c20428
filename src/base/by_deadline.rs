// SPDX-License-Identifier: Apache-2.0
//! Work that may wait for a file system, by a deadline of the caller.

use std::time::Instant;

use crate::base::error::{Result, fail};
use crate::base::guarded::guarded;
use crate::base::handoff::{Taken, handoff};
use crate::base::thread_pool::Pool;

/// Does the work on a thread of its own, and waits for it until the deadline; without one, does it here. Work that is late goes on, and its
/// value is dropped on its thread.
pub fn by_deadline<T: Send + 'static>(
    deadline: Option<Instant>,
    doing: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if deadline.is_none() {
        return work();
    }
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
        let ((release, held), (end, ended)) = (channel::<()>(), channel());
        let late = by_deadline(Some(Instant::now()), "wait", move || {
            held.recv().unwrap();
            end.send(7).unwrap();
            Ok(())
        });
        assert_eq!(late.unwrap_err().status(), Status::TimedOut);
        release.send(()).unwrap();
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(7));
    }

    #[test]
    fn the_result_is_that_of_the_work() {
        let later = Some(Instant::now() + Duration::from_secs(60));
        assert_eq!(by_deadline(later, "add", || Ok(1 + 1)).unwrap(), 2);
        let panicked = by_deadline(later, "panic", || -> Result<()> { panic!("deliberate") });
        assert_eq!(panicked.unwrap_err().status(), Status::Panic);
    }
}
