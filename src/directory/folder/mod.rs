// SPDX-License-Identifier: Apache-2.0
//! Entries as files of a folder of this machine: the embedded default, which needs no server.
//!
//! The file of an entry is locked by its process, so the kernel ends the lease when the process ends. Changes are reported by
//! inotify. Another process can write anything to the folder; what is no entry is reported as invalid.

mod changes;
mod creation;
mod files;
mod names;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::store::{self, Reply, Request, Sink, Store};
use crate::base::paths::absolute;
use crate::base::{Error, EventFd, Giver, Result, Taken, Taker, error, fail, guarded, handoff, log, thread};
use files::Folder;
use worker::{Job, Worker};

/// A folder, and the thread that uses it.
pub struct FolderStore {
    location: String,
    jobs: Option<Sender<Job>>,
    wake: Arc<EventFd>,
    /// The thread, and whose giver is dropped when it ends.
    thread: Option<(JoinHandle<()>, Taker<()>)>,
}

/// How long the file system may take to open the folder.
const OPENING: Duration = Duration::from_secs(5);
/// How long the end of the store waits for its thread: a file system may not respond, and then the thread ends later.
const END_LIMIT: Duration = Duration::from_secs(1);

impl FolderStore {
    /// Opens a folder, which is created if it does not exist, but not its parents.
    pub fn open(path: &Path, sink: Sink) -> Result<Self> {
        // The thread opens the folder again later, when the process may have another working directory.
        let path = absolute(path)?;
        let location = format!("folder {}", path.display());
        let wake = Arc::new(EventFd::new()?);
        let (jobs, receiver) = channel();
        let ((opened, result), (end, ended)) = (handoff(), handoff::<()>());
        let (woken, named) = (wake.clone(), location.clone());
        let thread = thread::spawn("kvmem-directory", move || {
            let _end = end;
            let folder = match Folder::open(&path) {
                Ok(folder) => folder,
                Err(error) => return drop(opened.give(Err(error))),
            };
            let mut worker = Worker::new(folder, named, sink);
            // The caller may have stopped to wait for the file system.
            if opened.give(Ok(())).is_err() {
                return;
            }
            if let Err(bug) = guarded(|| worker.run(&receiver, &woken)) {
                let ended = || worker.report_end(store::ended(bug.message()));
                if let Err(again) = guarded(ended) {
                    log!(Error, "the thread of a directory: {again}");
                }
            }
        })?;
        match result.take(Some(Instant::now() + OPENING)) {
            Taken::Value(opened) => opened?,
            Taken::TooLate => {
                fail!(TimedOut, "open {location}: the file system has not responded for {OPENING:?}")
            }
            Taken::Gone => fail!(Panic, "the directory's thread ended or panicked"),
        }
        Ok(Self { location, jobs: Some(jobs), wake, thread: Some((thread, ended)) })
    }
}

impl Store for FolderStore {
    fn submit(&self, request: Request, deadline: Option<Instant>, reply: Giver<Result<Reply>>) {
        if let Some(jobs) = &self.jobs {
            // If the thread has ended, the caller sees that its reply is dropped.
            let _ = jobs.send(Job { request, deadline, reply });
            self.wake.signal();
        }
    }

    fn location(&self) -> &str {
        &self.location
    }

    /// Its thread reports what it finds, and reports nothing while the file system does not respond.
    fn trouble(&self) -> Option<Error> {
        None
    }

    fn silence(&self) -> Option<Error> {
        Some(error!(Io, "the file system does not respond"))
    }
}

impl Drop for FolderStore {
    fn drop(&mut self) {
        drop(self.jobs.take());
        self.wake.signal();
        let Some((thread, ended)) = self.thread.take() else { return };
        match ended.take(Some(Instant::now() + END_LIMIT)) {
            Taken::TooLate => {
                log!(Warn, "{} does not respond; the thread of its directory continues", self.location);
            }
            _ => drop(thread.join()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};

    use super::*;
    use crate::base::Mutex;
    use crate::test_folder::TestFolder;

    /// A thread that reports may as well wait for a file system.
    #[test]
    fn the_end_of_a_store_does_not_wait_for_a_thread_that_is_stuck() {
        let folder = TestFolder::missing();
        let ((is_stuck, stuck), (release, released)) = (sync_channel(1), sync_channel::<()>(1));
        let released = Mutex::new(released);
        let sink: Sink = Box::new(move |_| {
            let _ = is_stuck.try_send(());
            let _ = released.lock().recv();
        });
        let store = FolderStore::open(&folder, sink).unwrap();
        store.submit(Request::Watch(None), None, handoff().0);
        stuck.recv().unwrap();
        let (ended, end) = sync_channel::<()>(1);
        let dropping = std::thread::spawn(move || drop((store, ended)));
        assert_eq!(end.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
        drop(release);
        dropping.join().unwrap();
    }
}
