// SPDX-License-Identifier: Apache-2.0
//! The thread of a folder: executes requests, and reports changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::changes::{Changes, Inotify};
use super::files::{Folder, Found, OwnFile};
use crate::base::{Error, EventFd, Giver, Result, Status, ensure, has_passed, log, retried, time_left};
use crate::directory::entry::{Entry, Presence, invalid, not_found, refused};
use crate::directory::store::{Reply, Report, Request, Sink, State};

/// Between two looks at all entries, which find what inotify did not report: changes by another machine, for example.
const SWEEP: Duration = Duration::from_secs(10);
/// The same without inotify.
const SWEEP_ONLY: Duration = Duration::from_secs(1);
/// The least time between two attempts to open a folder again that was moved or removed, unless a caller asks for its entries, and between
/// two looks for one that did not exist yet.
const REOPEN: Duration = Duration::from_millis(100);
/// How often a request is executed that fails in a folder that is moved or removed meanwhile.
const MAX_ATTEMPTS: usize = 8;
/// The first wait after a file was closed: the kernel reports that before it releases the lock of an ended process.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// The last one. Each wait is twice the one before.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// A request of a caller.
pub struct Job {
    pub request: Request,
    pub deadline: Option<Instant>,
    pub reply: Giver<Result<Reply>>,
}

pub struct Worker {
    folder: Folder,
    location: String,
    sink: Sink,
    /// Who waits for the request that is executed. If a bug ends the thread, it is dropped after the end is reported.
    replying: Option<Giver<Result<Reply>>>,
    published: HashMap<String, Own>,
    watches_all: bool,
    watched: BTreeSet<String>,
    /// Entries whose file was closed by a writer, and when to look at them again.
    closed: HashMap<String, Look>,
    next_sweep: Instant,
    /// Entries could not be examined since the last sweep that succeeded.
    is_look_due: bool,
    /// The folder was moved or removed, and is to be opened again.
    is_gone: bool,
    next_opening: Instant,
    /// It could not be opened again, for this reason.
    lost: Option<Error>,
}

struct Own {
    presence: Presence,
    file: OwnFile,
    /// Another process has published the name. Its entry is not replaced.
    is_superseded: bool,
}

struct Look {
    at: Instant,
    wait: Duration,
}

impl Look {
    fn first() -> Self {
        Self { at: Instant::now() + FIRST_LOOK, wait: FIRST_LOOK }
    }

    fn next(&self) -> Option<Self> {
        let wait = self.wait * 2;
        (wait <= LAST_LOOK).then(|| Self { at: Instant::now() + wait, wait })
    }
}

impl Worker {
    pub fn new(folder: Folder, location: String, sink: Sink) -> Self {
        Self {
            folder,
            location,
            sink,
            replying: None,
            published: HashMap::new(),
            watches_all: false,
            watched: BTreeSet::new(),
            closed: HashMap::new(),
            next_sweep: Instant::now(),
            is_look_due: false,
            is_gone: false,
            next_opening: Instant::now(),
            lost: None,
        }
    }

    /// Runs until the store is dropped.
    pub fn run(&mut self, jobs: &Receiver<Job>, wake: &EventFd) {
        loop {
            loop {
                match jobs.try_recv() {
                    Ok(job) => self.execute(job),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.look();
            self.sleep(wake);
        }
    }

    /// Reports that a bug has ended the thread.
    pub fn report_end(&self, error: Error) {
        log!(Error, "{}: {error}", self.location);
        (self.sink)(Report::Ended(error));
    }

    fn sleep(&self, wake: &EventFd) {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        // Of a folder that is gone nothing counts any more.
        let inotify = self.folder.inotify.as_ref().filter(|_| !self.is_gone);
        fds.extend(inotify.map(|inotify| PollFd::new(&inotify.fd, PollFlags::IN)));
        let timeout = time_left(self.next_look());
        // A wait that fails is only a look too early.
        let _ = retried::poll(&mut fds, timeout);
        wake.clear();
    }

    fn next_look(&self) -> Option<Instant> {
        if self.is_gone || self.lost.is_some() {
            return Some(self.next_opening);
        }
        let is_used = self.watches_all || !self.watched.is_empty() || !self.published.is_empty();
        let sweep = is_used.then_some(self.next_sweep);
        self.closed.values().map(|look| look.at).chain(sweep).min()
    }

    fn look(&mut self) {
        let changes = self.folder.inotify.as_ref().map_or_else(Changes::default, Inotify::changes);
        let is_changed = !changes.names.is_empty() || !changes.closed.is_empty();
        self.is_gone |= changes.is_folder_gone || is_changed && !self.folder.is_in_place();
        if self.is_gone || self.lost.is_some() {
            if self.next_opening <= Instant::now() {
                self.reopen();
            }
            return;
        }
        for name in changes.names {
            self.examine(&name);
        }
        for name in changes.closed {
            self.examine(&name);
            self.closed.insert(name, Look::first());
        }
        self.look_at_closed();
        if changes.is_incomplete || self.next_sweep <= Instant::now() {
            self.sweep();
        }
    }

    /// Looks again at entries whose file was closed. Their process may have ended.
    fn look_at_closed(&mut self) {
        let now = Instant::now();
        let due: Vec<_> =
            self.closed.iter().filter(|(_, look)| look.at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            let Some(look) = self.closed.remove(&name) else { continue };
            if !self.folder.is_alive(&name) {
                self.examine(&name);
            } else if let Some(next) = look.next() {
                self.closed.insert(name, next);
            }
        }
    }

    fn sweep(&mut self) {
        if self.folder.is_in_place() {
            self.look_at_all();
        } else {
            self.reopen();
        }
    }

    fn look_at_all(&mut self) {
        let wait = match &self.folder.inotify {
            _ if !self.folder.is_open() => REOPEN,
            Some(_) => SWEEP,
            None => SWEEP_ONLY,
        };
        self.next_sweep = Instant::now() + wait;
        let names: Vec<_> = self.published.keys().cloned().collect();
        // All of them, also after one that fails.
        let restored = names.iter().map(|name| self.restore(name)).fold(Ok(()), Result::and);
        match restored.and(self.report_watched()) {
            Ok(()) => self.is_look_due = false,
            Err(error) => self.look_soon(&error),
        }
    }

    /// What is stored could not be found out, and nothing was reported, or an entry could not be written again. All entries are examined
    /// soon. The log has it once until that succeeds: each change of an entry may fail the same way.
    fn look_soon(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_look_due, true) {
            log!(Warn, "{}: {error}; its entries are examined again", self.location);
        }
        self.next_sweep = self.next_sweep.min(Instant::now() + SWEEP_ONLY);
    }

    /// Opens a folder that exists now, or again one that was removed or renamed, and publishes again.
    fn reopen(&mut self) {
        let now = Instant::now();
        // Callers may ask again and again while another process moves it again and again.
        let is_logged = self.next_opening <= now && self.folder.is_open();
        self.next_opening = now + REOPEN;
        match self.folder.open_again() {
            Ok(folder) => {
                self.folder = folder;
                self.is_gone = false;
                if is_logged {
                    log!(Warn, "{} was removed or renamed; it is created again", self.location);
                }
                self.look_at_all();
                if self.lost.take().is_some() {
                    (self.sink)(Report::Resumed);
                }
            }
            Err(error) => {
                // That of a missing agent is the same.
                let is_missing = error.status() == Status::NotFound;
                let error = if is_missing { error.with_status(Status::Io) } else { error };
                if self.lost.replace(error.clone()).is_none() {
                    (self.sink)(Report::Interrupted(error));
                }
            }
        }
    }

    fn report_watched(&self) -> Result<()> {
        if self.watches_all {
            self.report_all(None)
        } else {
            self.watched.iter().try_for_each(|name| self.report_all(Some(name)))
        }
    }

    /// Reports the states of all names, or that of one. Reports none if one is not known: it would be taken for absent.
    fn report_all(&self, scope: Option<&String>) -> Result<()> {
        let names = scope.map_or_else(|| self.folder.names(), |name| Ok(vec![name.clone()]))?;
        let mut states = Vec::with_capacity(names.len());
        for name in names {
            match self.state(&name)? {
                State::Absent => {}
                state => states.push((name, state)),
            }
        }
        (self.sink)(Report::States { scope: scope.cloned(), states, is_first: true, is_last: true });
        Ok(())
    }

    fn state(&self, name: &str) -> Result<State> {
        self.folder.find(name).map(state_of)
    }

    /// What is stored under a name. Fails for an entry that cannot be read: it may be valid.
    fn read(&self, name: &str) -> Result<Found> {
        match self.folder.find(name)? {
            Found::Invalid(reason)
                if matches!(reason.status(), Status::PermissionDenied | Status::Io | Status::OutOfMemory) =>
            {
                Err(reason.context("read its entry"))
            }
            found => Ok(found),
        }
    }

    /// Looks at an entry that may have changed.
    fn examine(&mut self, name: &str) {
        if let Err(error) = self.restore(name) {
            self.look_soon(&error);
        }
        if self.watches_all || self.watched.contains(name) {
            match self.state(name) {
                Ok(state) => (self.sink)(Report::State(name.to_string(), state)),
                Err(error) => self.look_soon(&error),
            }
        }
    }

    /// Writes an entry of this process again if it was removed or damaged, but not if another process has published the name.
    fn restore(&mut self, name: &str) -> Result<()> {
        self.try_restore(name).map_err(|error| {
            self.is_gone |= !self.folder.is_in_place();
            error.context(format!("write the entry of agent '{name}' again"))
        })
    }

    fn try_restore(&mut self, name: &str) -> Result<()> {
        let Some(own) = self.published.get_mut(name) else { return Ok(()) };
        if own.is_superseded || self.folder.is_own(name, &own.file)? {
            return Ok(());
        }
        let is_other = |entry: &Entry| entry.presence.incarnation != own.presence.incarnation;
        let written = match self.folder.find(name)? {
            Found::Entry(entry) if is_other(&entry) => None,
            _ => self.folder.write_again(name, own.file.bytes.clone(), own.presence.incarnation)?,
        };
        let Some(file) = written else {
            own.is_superseded = true;
            (self.sink)(Report::Superseded(name.to_string()));
            return Ok(());
        };
        own.file = file;
        (self.sink)(Report::Restored(name.to_string()));
        log!(
            Warn,
            "the entry of agent '{name}' in {} was removed or damaged; it is written again",
            self.location
        );
        Ok(())
    }

    fn execute(&mut self, job: Job) {
        self.replying = Some(job.reply);
        let is_late = has_passed(job.deadline);
        // A withdrawal is executed even if its caller waits no more.
        let result = if is_late && !matches!(job.request, Request::Withdraw(_) | Request::Unwatch(_)) {
            Err(Error::new(Status::TimedOut, "there was no time left"))
        } else {
            self.perform(&job.request)
        };
        if let Some(reply) = self.replying.take() {
            let _ = reply.give(result);
        }
    }

    fn perform(&mut self, request: &Request) -> Result<Reply> {
        let mut left = MAX_ATTEMPTS;
        loop {
            if self.lost.is_some() || !self.folder.is_in_place() {
                self.reopen();
            }
            if let Some(reason) = &self.lost
                && !matches!(request, Request::Withdraw(_) | Request::Unwatch(_))
            {
                return Err(reason.clone());
            }
            left -= 1;
            match self.perform_here(request) {
                // The end of a publication that another process has superseded is an end, too.
                Err(error) if error.status() != Status::Stale && left > 0 && !self.folder.is_in_place() => {}
                done => return done,
            }
        }
    }

    /// Executes a request in the folder that is open.
    fn perform_here(&mut self, request: &Request) -> Result<Reply> {
        match request {
            Request::Publish(entry) => self.publish(entry)?,
            Request::Withdraw(name) => self.withdraw(name)?,
            Request::LookUp(name) => {
                return match self.read(name)? {
                    Found::Entry(entry) => Ok(Reply::Entry(entry)),
                    Found::Nothing | Found::Ended => Err(not_found()),
                    Found::Invalid(reason) => Err(refused(name, &invalid(&reason), &self.location)),
                };
            }
            Request::Check(name) => return Ok(Reply::Presence(state_of(self.read(name)?))),
            Request::Watch(name) => {
                match name {
                    None => self.watches_all = true,
                    Some(name) => drop(self.watched.insert(name.clone())),
                }
                self.next_sweep = Instant::now();
                self.report_all(name.as_ref())?;
            }
            Request::Unwatch(name) => match name {
                None => self.watches_all = false,
                Some(name) => drop(self.watched.remove(name)),
            },
        }
        Ok(Reply::Done)
    }

    fn publish(&mut self, entry: &Entry) -> Result<()> {
        let presence = entry.presence.clone();
        let bytes = entry.write()?;
        if !self.folder.is_open() {
            self.folder.create()?;
            // Another process may have created it, and published in it, before its changes were watched.
            self.next_sweep = Instant::now();
        }
        let file = self.folder.write(&presence.name, bytes)?;
        let name = presence.name.clone();
        self.published.insert(name, Own { presence, file, is_superseded: false });
        Ok(())
    }

    fn withdraw(&mut self, name: &str) -> Result<()> {
        let Some(own) = self.published.remove(name) else { return Ok(()) };
        ensure!(!own.is_superseded, Stale, "another process has published an agent of that name since");
        match self.folder.remove(name, &own.file) {
            Err(error) if error.status() != Status::Stale => {
                self.published.insert(name.to_string(), own);
                Err(error)
            }
            removed => removed,
        }
    }
}

fn state_of(found: Found) -> State {
    match found {
        Found::Nothing | Found::Ended => State::Absent,
        Found::Entry(entry) => State::Present(entry.presence),
        Found::Invalid(reason) => State::Invalid(invalid(&reason)),
    }
}
