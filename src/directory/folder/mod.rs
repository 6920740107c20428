// SPDX-License-Identifier: Apache-2.0
//! Entries as files of a folder of this machine: the embedded default, which needs no server.
//!
//! The file of an entry is locked by its process, so the kernel ends the lease when the process ends. Changes are reported by
//! inotify. Another process can write anything to the folder; what is no entry is reported as invalid.

mod changes;
mod files;
mod names;
mod opening;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::store::{self, Reply, Report, Request, Sink, Store};
use crate::base::paths::absolute;
use crate::base::{
    Error, EventFd, Giver, Mutex, Result, Taken, Taker, error, fail, guarded, handoff, log, thread,
};
use files::Folder;
use worker::{Job, Worker};

/// A folder, and the thread that uses it.
pub struct FolderStore {
    location: String,
    jobs: Option<Sender<Job>>,
    wake: Arc<EventFd>,
    /// Why the folder cannot be opened now.
    trouble: Arc<Mutex<Option<Error>>>,
    /// The thread, and whose giver is dropped when it ends.
    thread: Option<(JoinHandle<()>, Taker<()>)>,
}

/// How long the file system may take to open the folder.
const OPENING: Duration = Duration::from_secs(5);
/// How long the end of the store waits for its thread: a file system may not respond, and then the thread ends later.
const END_LIMIT: Duration = Duration::from_secs(1);

impl FolderStore {
    /// Opens a folder. The first publication creates one that does not exist, but not its parents.
    pub fn open(path: &Path, sink: Sink) -> Result<Self> {
        // The thread opens the folder again later, when the process may have another working directory.
        let path = absolute(path)?;
        let location = format!("folder {}", path.display());
        let wake = Arc::new(EventFd::new()?);
        let (jobs, receiver) = channel();
        let ((opened, result), (end, ended)) = (handoff(), handoff::<()>());
        let (woken, named) = (wake.clone(), location.clone());
        let trouble = Arc::<Mutex<Option<Error>>>::default();
        let sink = noting(trouble.clone(), sink);
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
        Ok(Self { location, jobs: Some(jobs), wake, trouble, thread: Some((thread, ended)) })
    }
}

/// A sink that also notes whether the folder can be opened.
fn noting(trouble: Arc<Mutex<Option<Error>>>, sink: Sink) -> Sink {
    Box::new(move |report| {
        match &report {
            Report::Interrupted(error) => *trouble.lock() = Some(error.clone()),
            Report::Resumed => *trouble.lock() = None,
            _ => {}
        }
        sink(report);
    })
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

    fn trouble(&self) -> Option<Error> {
        self.trouble.lock().clone()
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
    use std::sync::Barrier;
    use std::sync::mpsc::{RecvTimeoutError, sync_channel};

    use super::super::entry::{Entry, Presence};
    use super::super::store::State;
    use super::*;
    use crate::base::Status;
    use crate::test_folder::TestFolder;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn open(path: &Path) -> FolderStore {
        FolderStore::open(path, Box::new(|_| ())).unwrap()
    }

    fn ask(store: &FolderStore, request: Request) -> Result<Reply> {
        let (giver, reply) = handoff();
        store.submit(request, None, giver);
        match reply.take(Some(Instant::now() + PATIENCE)) {
            Taken::Value(reply) => reply,
            _ => panic!("no reply"),
        }
    }

    fn publish(store: &FolderStore, name: &str) -> Result<Reply> {
        let presence = Presence { name: name.to_string(), incarnation: 1, version: 1 };
        let entry = Entry { presence, metadata: Default::default(), layouts: Vec::new() };
        ask(store, Request::Publish(Box::new(entry)))
    }

    fn look_up(store: &FolderStore, name: &str) -> Result<Reply> {
        ask(store, Request::LookUp(name.to_string()))
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn only_a_publication_creates_a_folder_that_never_existed() {
        let path = TestFolder::missing();
        let (sender, reports) = sync_channel(1000);
        let reader = FolderStore::open(&path, Box::new(move |report| drop(sender.try_send(report)))).unwrap();
        look_up(&reader, "a").unwrap_err().assert_is(Status::NotFound, "");
        assert!(matches!(ask(&reader, Request::Check("a".into())), Ok(Reply::Presence(State::Absent))));
        ask(&reader, Request::Watch(Some("a".into()))).unwrap();
        let publisher = open(&path);
        assert!(!path.exists(), "a process that publishes nothing has created it");
        publish(&publisher, "a").unwrap();
        assert_eq!(mode_of(&path), 0o700);
        // The watch finds it without a call.
        let is_found = |report: &Report| match report {
            Report::States { states, .. } => !states.is_empty(),
            Report::State(_, state) => *state != State::Absent,
            _ => false,
        };
        while !is_found(&reports.recv_timeout(PATIENCE).unwrap()) {}
        // The reader has it open now, and creates it again as it was.
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2770)).unwrap();
        drop(publisher);
        let elsewhere = TestFolder::new();
        std::fs::rename(&path, elsewhere.join("old")).unwrap();
        look_up(&reader, "a").unwrap_err().assert_is(Status::NotFound, "");
        assert_eq!(mode_of(&path), 0o2770);
    }

    #[test]
    fn a_folder_is_not_created_again_by_a_process_that_never_had_it_open() {
        let path = TestFolder::missing();
        let (reader, publisher) = (open(&path), open(&path));
        publish(&publisher, "a").unwrap();
        drop(publisher);
        std::fs::remove_dir_all(&path).unwrap();
        look_up(&reader, "a").unwrap_err().assert_is(Status::NotFound, "");
        assert!(!path.exists());
        publish(&reader, "b").unwrap();
        assert_eq!(mode_of(&path), 0o700);
    }

    #[test]
    fn all_first_publications_at_once_are_found() {
        for _ in 0..20 {
            let path = TestFolder::missing();
            let stores = ["a", "b", "c"].map(|name| (name, open(&path)));
            let begin = Barrier::new(stores.len());
            std::thread::scope(|scope| {
                for (name, store) in &stores {
                    scope.spawn(|| {
                        begin.wait();
                        publish(store, name).unwrap();
                    });
                }
            });
            for (_, store) in &stores {
                for (name, _) in &stores {
                    assert!(matches!(look_up(store, name), Ok(Reply::Entry(_))));
                }
            }
        }
    }

    /// Its parent may have been renamed, and agents in it live.
    #[test]
    fn a_folder_whose_parent_is_gone_is_not_called_empty() {
        let parent = TestFolder::new();
        let path = parent.join("agents");
        let store = open(&path);
        std::fs::remove_dir(&*parent).unwrap();
        let missing = format!("{}: No such file or directory", path.display());
        for error in [look_up(&store, "a").unwrap_err(), publish(&store, "a").unwrap_err()] {
            error.assert_is(Status::Io, &missing);
        }
        // A call that waits ends with the reason.
        store.trouble().unwrap().assert_is(Status::Io, &missing);
        std::fs::write(&*parent, []).unwrap();
        let error = format!("{}: Not a directory", path.display());
        look_up(&store, "a").unwrap_err().assert_is(Status::Io, &error);
        std::fs::remove_file(&*parent).unwrap();
        std::fs::create_dir(&*parent).unwrap();
        look_up(&store, "a").unwrap_err().assert_is(Status::NotFound, "");
        publish(&store, "a").unwrap();
        assert!(store.trouble().is_none());
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
