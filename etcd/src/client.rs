// SPDX-License-Identifier: Apache-2.0
//! The client: executes requests, keeps entries published, and reports changes, over one connection after the other.

#![forbid(unsafe_code)]

mod publications;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use etcd_client::{EventType, WatchResponse};
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::Sink;
use crate::connection::any_endpoint;
use crate::protocol::{Command, Failure, Message, Options, Request, Value};
use crate::session::{LeaseSlot, Result, Session, losses, status};
use publications::Own;

/// The wait before a connection is tried again: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// No request waits longer.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// A withdrawal waits at least this long, also if its caller does not.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// A server that has not responded for this long is left, if there is another one.
const SILENCE: Duration = Duration::from_secs(1);
/// How long the end of a client waits for the end of its lease.
const REVOKE_LIMIT: Duration = Duration::from_millis(500);

/// Runs a client until its commands end. The thread is its own.
pub fn run(options: Options, commands: UnboundedReceiver<Command>, sink: Sink) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("start the runtime of the client: {error}");
            sink.send(&Message::Opened(Err(Failure { status: status::IO, message })));
            return;
        }
    };
    let lease = LeaseSlot::default();
    let local = LocalSet::new();
    local.block_on(&runtime, serve(options, commands, sink, lease.clone()));
    local.block_on(&runtime, async {
        if let Some((client, id)) = lease.take() {
            let _ = timeout(REVOKE_LIMIT, client.lease_client().revoke(id)).await;
        }
    });
    drop(local);
    // A look-up of a host name may still be in progress on another thread, which nothing waits for.
    runtime.shutdown_background();
}

/// Passes commands on. When they end, the client ends at once, even while it waits for etcd.
async fn serve(options: Options, mut commands: UnboundedReceiver<Command>, sink: Sink, lease: LeaseSlot) {
    let (forward, forwarded) = tokio::sync::mpsc::unbounded_channel();
    let (ended, end) = oneshot::channel::<()>();
    tokio::task::spawn_local(async move {
        while let Some(command) = commands.recv().await {
            let _ = forward.send((command, Instant::now()));
        }
        let _ = ended.send(());
    });
    tokio::select! {
        _ = Client::new(options, sink, lease).run(forwarded) => {}
        _ = end => {}
    }
}

struct Client {
    options: Options,
    sink: Sink,
    session: Option<Session>,
    /// The index of the endpoint that is tried first.
    endpoint: usize,
    lease: i64,
    lease_slot: LeaseSlot,
    losses: (tokio::sync::mpsc::Sender<Failure>, Receiver<Failure>),
    published: BTreeMap<String, Own>,
    /// What the caller watches, with the number of the watch in this session; `None` for all names.
    watched: BTreeMap<Option<String>, Option<i64>>,
    retry: Duration,
    is_interrupted: bool,
}

/// A command, and when it arrived.
type Queued = (Command, Instant);

/// What comes next.
enum Turn {
    Command(Option<Queued>),
    Watch(Result<WatchResponse>),
    LeaseLost(Failure),
    Retry,
}

impl Client {
    fn new(options: Options, sink: Sink, lease_slot: LeaseSlot) -> Self {
        Self {
            endpoint: any_endpoint(&options),
            options,
            sink,
            session: None,
            lease: 0,
            lease_slot,
            losses: losses(),
            published: BTreeMap::new(),
            watched: BTreeMap::new(),
            retry: RETRY.0,
            is_interrupted: false,
        }
    }

    async fn run(mut self, mut commands: UnboundedReceiver<Queued>) {
        let opened =
            Session::connect(&self.options, self.endpoint).await.map(|session| self.session = Some(session));
        let failed = opened.is_err();
        self.sink.send(&Message::Opened(opened));
        if failed {
            return;
        }
        loop {
            let turn = match &mut self.session {
                Some(session) => tokio::select! {
                    command = commands.recv() => Turn::Command(command),
                    message = session.next() => Turn::Watch(message),
                    Some(failure) = self.losses.1.recv() => Turn::LeaseLost(failure),
                },
                None => tokio::select! {
                    command = commands.recv() => Turn::Command(command),
                    _ = sleep(self.retry) => Turn::Retry,
                },
            };
            match turn {
                Turn::Command(None) => return,
                Turn::Command(Some((command, arrival))) => self.execute(command, arrival).await,
                Turn::Watch(Ok(message)) => self.apply(&message).await,
                Turn::Watch(Err(failure)) => self.lose(failure),
                Turn::LeaseLost(failure) => self.renew(failure).await,
                Turn::Retry => drop(self.connected().await),
            }
        }
    }

    /// The connection. Connects, and restores everything, if there is none.
    async fn connected(&mut self) -> Result<()> {
        if self.session.is_some() {
            return Ok(());
        }
        let restored = match Session::connect(&self.options, self.endpoint).await {
            Ok(session) => {
                self.session = Some(session);
                self.restore().await
            }
            Err(failure) => Err(failure),
        };
        match restored {
            Ok(()) => {
                self.retry = RETRY.0;
                if std::mem::take(&mut self.is_interrupted) {
                    self.sink.send(&Message::Resumed);
                }
                Ok(())
            }
            Err(failure) => {
                self.retry = (self.retry * 2).min(RETRY.1);
                self.lose(failure.clone());
                Err(failure)
            }
        }
    }

    fn lose(&mut self, failure: Failure) {
        if let Some(session) = self.session.take() {
            self.endpoint = (session.endpoint + 1) % self.options.endpoints.len();
        }
        self.is_interrupted = true;
        self.sink.send(&Message::Interrupted(failure));
    }

    /// The lease could not be kept alive: the server has forgotten it, or does not respond.
    async fn renew(&mut self, failure: Failure) {
        if self.has_others() {
            // Another server may keep it alive before it ends.
            return self.lose(failure);
        }
        self.sink.send(&Message::Log(format!("the lease of the entries is renewed: {}", failure.message)));
        if let Err(failure) = self.restore_published().await {
            self.lose(failure);
        }
    }

    /// Whether there are servers other than the one of this connection.
    fn has_others(&self) -> bool {
        self.options.endpoints.len() > 1
    }

    /// After a new connection: publishes again what is missing, reports all that is watched, and watches it.
    async fn restore(&mut self) -> Result<()> {
        self.published.values_mut().for_each(|own| own.watches = None);
        self.watched.values_mut().for_each(|id| *id = None);
        self.withdraw_again().await?;
        self.restore_published().await?;
        let watched: Vec<_> = self.watched.keys().cloned().collect();
        for name in watched {
            self.watch(name, MAX_WAIT).await?;
        }
        Ok(())
    }

    /// Reports what is stored under a name, or all names, and watches it from there on.
    async fn watch(&mut self, name: Option<String>, limit: Duration) -> Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let send = |states, [is_first, is_last]: [bool; 2]| {
            self.sink.send(&Message::Snapshot { scope: name.clone(), states, is_first, is_last });
        };
        let revision = match &name {
            Some(name) => {
                let (value, revision) = session.snapshot(name, limit).await?;
                send(value.into_iter().map(|value| (name.clone(), value)).collect(), [true, true]);
                revision
            }
            None => session.snapshot_all(limit, send).await?,
        };
        let id = session.watch(name.as_deref(), revision + 1).await?;
        if let Some(Some(before)) = self.watched.insert(name, Some(id)) {
            session.unwatch(before).await;
        }
        Ok(())
    }

    /// Takes events of the watch.
    async fn apply(&mut self, message: &WatchResponse) {
        if message.canceled() && !message.cancel_reason().is_empty() {
            let message = format!("the server has cancelled a watch: {}", message.cancel_reason());
            return self.lose(Failure { status: status::IO, message });
        }
        if message.canceled() && message.compact_revision() != 0 {
            let message = "the server has compacted the changes since the last one".to_string();
            return self.lose(Failure { status: status::IO, message });
        }
        for event in message.events() {
            let Some(pair) = event.kv() else { continue };
            let Some(session) = &self.session else { return };
            // The revision of a removed key is that of the removal.
            let is_new =
                |name: &str| self.published.get(name).is_some_and(|own| pair.mod_revision() > own.revision);
            if let Some(name) = session.keys().name_of_entry(pair.key()) {
                if is_new(&name)
                    && let Err(failure) = self.restore_entry(&name).await
                {
                    return self.lose(failure);
                }
                continue;
            }
            let Some(name) = session.keys().name_of(pair.key()) else { continue };
            let value = match event.event_type() {
                EventType::Delete => Value::Absent,
                EventType::Put => session.keys().presence_value(pair.value()),
            };
            if self.watched.contains_key(&None) || self.watched.contains_key(&Some(name.clone())) {
                self.sink.send(&Message::Changed(name.clone(), value.clone()));
            }
            if let Some(own) = self.published.get(&name).filter(|own| own.is_kept() && is_new(&name)) {
                let is_same = matches!(&value, Value::Bytes(bytes) if *bytes == own.presence);
                let met = match value {
                    Value::Absent => self.restore_published().await,
                    _ if is_same => Ok(()),
                    value => self.meet_foreign(&name, value).await,
                };
                if let Err(failure) = met {
                    return self.lose(failure);
                }
            }
        }
    }

    /// Executes a command, unless its caller does not wait for it any more: commands that arrive while a server does not respond
    /// would otherwise delay those that arrive after it has responded again.
    async fn execute(&mut self, command: Command, arrival: Instant) {
        let Command { id, timeout_ms, request } = command;
        let limit = timeout_ms.map_or(MAX_WAIT, Duration::from_millis).min(MAX_WAIT);
        let left = limit.saturating_sub(arrival.elapsed());
        let is_withdrawal = matches!(request, Request::Withdraw(_));
        let may_be_silent = self.has_others() && self.session.is_some() && left >= SILENCE;
        let result = self.perform(request, left).await;
        // A dead connection makes every further request wait as long. The next request connects again. A new connection also
        // withdraws what could not be withdrawn.
        if let Err(failure) = &result
            && (failure.status == status::IO
                || may_be_silent && failure.status == status::TIMED_OUT
                || is_withdrawal && failure.status != status::STALE)
            && self.session.is_some()
        {
            self.lose(failure.clone());
        }
        self.sink.send(&Message::Done { id, result });
    }

    /// Ends a watch. Without a connection too: then it is not restored.
    async fn unwatch(&mut self, name: &Option<String>) {
        if let (Some(Some(id)), Some(session)) = (self.watched.remove(name), &mut self.session) {
            session.unwatch(id).await;
        }
    }

    /// A new connection is not given up at the limit of a request: what is watched and published would be restored in part,
    /// or, with requests of short limits, never. The caller waits no longer than it wants, whatever this does.
    async fn perform(&mut self, request: Request, limit: Duration) -> Result<Value> {
        let begun = Instant::now();
        match &request {
            Request::Unwatch(name) => {
                self.unwatch(name).await;
                return Ok(Value::Absent);
            }
            Request::Withdraw(name) => self.begin_withdrawal(name),
            _ if limit.is_zero() => return Err(too_late()),
            _ => {}
        }
        self.connected().await?;
        let mut limit = limit.saturating_sub(begun.elapsed());
        if matches!(request, Request::Withdraw(_)) {
            limit = limit.max(MIN_WAIT);
        } else if limit.is_zero() {
            return Err(too_late());
        }
        match request {
            Request::Publish { name, presence, entry } => {
                self.publish(&name, presence, entry, limit).await?;
                self.guard(&name).await?;
            }
            Request::Withdraw(name) => self.withdraw(&name, limit).await?,
            Request::Entry(name) => {
                if let Some(session) = &self.session {
                    return session.entry(&name, limit).await;
                }
            }
            Request::Presence(name) => {
                if let Some(session) = &self.session {
                    let found = session.presence(&name, limit).await?;
                    return Ok(
                        found.map_or(Value::Absent, |pair| session.keys().presence_value(pair.value()))
                    );
                }
            }
            Request::Watch(name) => self.watch(name, limit).await?,
            Request::Unwatch(_) => {}
        }
        Ok(Value::Absent)
    }
}

fn too_late() -> Failure {
    Failure { status: status::TIMED_OUT, message: "the server did not respond in time".to_string() }
}
