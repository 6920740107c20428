// SPDX-License-Identifier: Apache-2.0
//! Entries as files of a folder of this machine: the embedded default, which needs no server.
//!
//! The file of an entry is locked by its process, so the kernel ends the lease when the process ends. Changes are reported by
//! inotify. Another process can write anything to the folder; what is no entry is reported as invalid.

mod changes;
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
    /// Opens a folder. One that does not exist is created when an entry is published, but not its parents.
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
            let folder = match Folder::open(&path, None, false) {
                Ok(folder) => folder,
                Err(error) => return drop(opened.give(Err(error))),
            };
            let mut worker = Worker::new(path, folder, named, sink);
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
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};

    use super::super::entry::{Entry, Presence};
    use super::super::store::{Report, State};
    use super::*;
    use crate::base::{Mutex, Status};
    use crate::test_folder::TestFolder;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn ask(store: &FolderStore, request: Request) -> Result<Reply> {
        let (giver, reply) = handoff();
        store.submit(request, None, giver);
        match reply.take(Some(Instant::now() + PATIENCE)) {
            Taken::Value(reply) => reply,
            _ => panic!("no reply"),
        }
    }

    fn ensure_absent(store: &FolderStore, path: &Path) {
        let found = ask(store, Request::LookUp("a".into())).err().map(|error| error.status());
        assert_eq!(found, Some(Status::NotFound));
        let found = ask(store, Request::Check("a".into())).unwrap();
        assert!(matches!(found, Reply::Presence(State::Absent)));
        assert!(!path.exists(), "a look-up has created the folder");
    }

    /// Its permissions are those of the publisher, and may not be what another user of it needs.
    #[test]
    fn only_a_publication_creates_the_folder_and_who_watches_finds_it() {
        let path = TestFolder::missing();
        let (sender, reports) = sync_channel(1000);
        let reader = FolderStore::open(&path, Box::new(move |report| drop(sender.try_send(report)))).unwrap();
        ensure_absent(&reader, &path);
        ask(&reader, Request::Watch(None)).unwrap();
        let publisher = FolderStore::open(&path, Box::new(|_| ())).unwrap();
        let presence = Presence { name: "a".into(), incarnation: 1, version: 1 };
        let entry = Entry { presence, metadata: Default::default(), layouts: Vec::new() };
        ask(&publisher, Request::Publish(Box::new(entry))).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let is_found = |report: &Report| match report {
            Report::States { states, .. } => !states.is_empty(),
            Report::State(_, state) => *state != State::Absent,
            _ => false,
        };
        while !is_found(&reports.recv_timeout(PATIENCE).unwrap()) {}
        assert!(matches!(ask(&reader, Request::LookUp("a".into())), Ok(Reply::Entry(_))));
        drop(publisher);
        std::fs::remove_dir_all(&path).unwrap();
        ensure_absent(&reader, &path);
    }

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
        assert_eq!(end.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        drop(release);
        dropping.join().unwrap();
    }
}
