// SPDX-License-Identifier: Apache-2.0
//! Deadlines of a store that does not respond, and the end of its thread.

use std::sync::atomic::{AtomicBool, Ordering};

use super::board::Change;
use super::*;
use crate::base::Giver;
use crate::test_folder::TestFolder;

/// A store that replies to nothing.
#[derive(Default)]
struct Silent(Mutex<Vec<Giver<Result<Reply>>>>);

impl Store for Silent {
    fn submit(&self, _: Request, _: Option<Instant>, reply: Giver<Result<Reply>>) {
        self.0.lock().push(reply);
    }

    fn location(&self) -> &str {
        "nowhere"
    }

    fn trouble(&self) -> Option<Error> {
        None
    }

    fn longest(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
}

#[test]
fn calls_without_a_timeout_end_with_the_limit_of_the_store() {
    let (watch, published, turns, offers) = Default::default();
    let store = Box::new(Silent::default());
    let directory = Directory { log_id: LogId::next(), store, watch, published, turns, offers };
    let status = |outcome: Result<()>| outcome.unwrap_err().status();
    assert_eq!(status(directory.look_up("a", None).map(drop)), Status::TimedOut);
    assert_eq!(status(directory.watch(None, None)), Status::TimedOut);
    assert_eq!(status(directory.wait_for("a", None).map(drop)), Status::TimedOut);
}

/// The bug is in the first report, of what is watched.
#[test]
fn a_bug_that_ends_the_thread_of_a_folder_ends_all_waits() {
    let path = TestFolder::missing();
    let watch = Arc::<Watch>::default();
    let (reporting, is_first) = (watch.clone(), AtomicBool::new(true));
    let sink: Sink = Box::new(move |report| {
        assert!(!is_first.swap(false, Ordering::Relaxed), "deliberate");
        reporting.report(report);
    });
    let store = Box::new(folder::FolderStore::open(&path, sink).unwrap());
    let (published, turns, offers) = Default::default();
    let log_id = LogId::next();
    let directory = Arc::new(Directory { log_id, store, watch, published, turns, offers });
    let (ended, seen) = std::sync::mpsc::channel();
    let waits: [fn(&Directory) -> Result<()>; 3] = [
        // The thread ends while it executes this one.
        |directory| directory.wait_for("a", None).map(drop),
        |directory| directory.wait_for("a", None).map(drop),
        |directory| loop {
            let events = directory.take_events(None)?;
            let is_end = |event: &Event| matches!(&event.change, Change::Interrupted(_));
            assert!(events.iter().all(is_end), "{events:?}");
        },
    ];
    for wait in waits {
        let (directory, ended) = (directory.clone(), ended.clone());
        std::thread::spawn(move || ended.send(wait(&directory).unwrap_err()));
        let error = seen.recv_timeout(Duration::from_secs(60)).unwrap();
        error.assert_is(Status::Panic, "deliberate; open the directory again");
    }
}

fn presence(incarnation: u64, version: u64) -> Presence {
    Presence { name: "a".to_string(), incarnation, version }
}

#[test]
fn stale_and_not_found_are_distinct() {
    let status = |state| compare(&presence(5, 2), Reply::Presence(state), "x").err().map(|e| e.status());
    assert_eq!(status(State::Present(presence(5, 2))), None);
    assert_eq!(status(State::Present(presence(5, 3))), Some(Status::Stale));
    assert_eq!(status(State::Present(presence(6, 2))), Some(Status::Stale));
    assert_eq!(status(State::Absent), Some(Status::NotFound));
    assert_eq!(status(State::Invalid("x".to_string())), Some(Status::Corrupt));
}
