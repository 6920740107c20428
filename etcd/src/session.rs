// SPDX-License-Identifier: Apache-2.0
//! A connection to etcd: keys, values, the lease, the watch. Every call ends within a limit.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, GetOptions, GetResponse, KeyValue, KvClient,
    PutOptions, ResponseHeader, Txn, TxnOp, TxnOpResponse, WatchOptions, WatchResponse, WatchStream,
};
use serde_bytes::ByteBuf;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::connection;
use crate::paging::Paging;
use crate::protocol::{Failure, Options, Value};

/// No call waits longer for a server.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The largest message that is accepted. A page of a snapshot that is larger is read in smaller pages.
const MAX_MESSAGE: usize = 64 << 20;

/// Statuses of the C ABI.
pub mod status {
    pub const OUT_OF_MEMORY: i32 = -2;
    pub const INVALID_ARGUMENT: i32 = -1;
    pub const TIMED_OUT: i32 = -8;
    pub const PERMISSION_DENIED: i32 = -11;
    pub const IO: i32 = -16;
    pub const STALE: i32 = -18;
}

pub type Result<T> = std::result::Result<T, Failure>;

/// A connection.
pub struct Session {
    pub client: Client,
    /// The index of the endpoint.
    pub endpoint: usize,
    keys: Keys,
    watch: Option<WatchStream>,
    next_watch: i64,
    keeper: Option<tokio::task::JoinHandle<()>>,
}

/// What is stored under a name.
pub struct Stored {
    pub presence: Option<KeyValue>,
    /// When the entry was written last; 0 if there is none. An entry that is whole was written with its presence.
    pub entry_revision: i64,
    /// The revision of the store that this is of.
    pub revision: i64,
}

/// The keys of names.
#[derive(Clone)]
pub struct Keys {
    agents: String,
    entries: String,
    max_bytes: (usize, usize),
}

impl Keys {
    pub fn new(options: &Options) -> Self {
        let prefix = options.prefix.trim_end_matches('/');
        Self {
            agents: format!("{prefix}/agents/"),
            entries: format!("{prefix}/entries/"),
            max_bytes: options.max_bytes,
        }
    }

    pub fn presence(&self, name: &str) -> String {
        format!("{}{name}", self.agents)
    }

    pub fn entry(&self, name: &str) -> String {
        format!("{}{name}", self.entries)
    }

    /// The name of a key of a presence; `None` for any other key.
    pub fn name_of(&self, key: &[u8]) -> Option<String> {
        without(key, &self.agents)
    }

    /// The same of an entry.
    pub fn name_of_entry(&self, key: &[u8]) -> Option<String> {
        without(key, &self.entries)
    }

    fn value(bytes: &[u8], most: usize) -> Value {
        if bytes.len() <= most { Value::Bytes(ByteBuf::from(bytes)) } else { Value::TooLarge(bytes.len()) }
    }

    pub fn presence_value(&self, bytes: &[u8]) -> Value {
        Self::value(bytes, self.max_bytes.0)
    }
}

fn without(key: &[u8], prefix: &str) -> Option<String> {
    Some(std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.to_string())
}

/// Ends the keeper of the lease.
impl Drop for Session {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
    }
}

/// Waits for a call of the client, within a limit.
pub async fn limited<T>(
    limit: Duration,
    call: impl Future<Output = std::result::Result<T, Error>>,
) -> Result<T> {
    match timeout(limit, call).await {
        Ok(result) => result.map_err(|error| failure(&error)),
        Err(_) => Err(late(limit)),
    }
}

pub fn late(limit: Duration) -> Failure {
    let message = format!("the server did not respond within {} ms", limit.as_millis());
    Failure { status: status::TIMED_OUT, message }
}

/// A failure of the client, with all causes that it has. None of them contains a password: the client keeps it apart.
pub fn failure(error: &Error) -> Failure {
    let mut message = error.to_string();
    let mut status = status::IO;
    if let Error::GRpcStatus(grpc) = error {
        message = grpc.message().to_string();
        status = match grpc.code() as i32 {
            4 => status::TIMED_OUT,
            3 if message.contains("authentication") || message.contains("user name") => {
                status::PERMISSION_DENIED
            }
            7 | 16 => status::PERMISSION_DENIED,
            8 => status::OUT_OF_MEMORY,
            _ => status::IO,
        };
        add_causes(&mut message, std::error::Error::source(grpc));
    }
    if let Error::TransportError(transport) = error {
        add_causes(&mut message, std::error::Error::source(transport));
    }
    if matches!(error, Error::InvalidArgs(_) | Error::InvalidUri(_)) {
        status = status::INVALID_ARGUMENT;
    }
    Failure { status, message }
}

fn add_causes(message: &mut String, mut cause: Option<&(dyn std::error::Error + 'static)>) {
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
}

/// Whether a failed call says that the connection is of no use.
fn is_too_large(error: &Error) -> bool {
    // OUT_OF_RANGE and RESOURCE_EXHAUSTED: how gRPC reports a message above its limit.
    matches!(error, Error::GRpcStatus(grpc) if matches!(grpc.code() as i32, 8 | 11))
}

impl Session {
    /// Connects to one of the endpoints, and tries the one with this index first.
    pub async fn connect(options: &Options, first: usize) -> Result<Self> {
        let keys = Keys::new(options);
        let (client, endpoint) = connection::connect(options, &keys.agents, first).await?;
        Ok(Self { client, endpoint, keys, watch: None, next_watch: 1, keeper: None })
    }

    fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MAX_MESSAGE)
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Keeps a lease alive, or gets a new one. `lost` gets the reason when it cannot be kept alive any more.
    pub async fn lease(&mut self, known: i64, seconds: u32, lost: &Sender<Failure>) -> Result<i64> {
        let mut client = self.client.lease_client();
        let kept = match known {
            0 => None,
            id => limited(MAX_WAIT, client.keep_alive(id)).await.ok(),
        };
        let (mut keeper, mut replies) = match kept {
            Some(kept) => kept,
            None => {
                let granted = limited(MAX_WAIT, client.grant(seconds.into(), None)).await?;
                limited(MAX_WAIT, client.keep_alive(granted.id())).await?
            }
        };
        let id = keeper.id();
        let lost = lost.clone();
        let interval = Duration::from_secs(seconds.into()) / 3;
        let task = tokio::task::spawn_local(async move {
            let reason = loop {
                sleep(interval).await;
                let reply = async {
                    keeper.keep_alive().await?;
                    replies.message().await
                };
                match limited(interval.max(Duration::from_secs(1)), reply).await {
                    Ok(Some(reply)) if reply.ttl() > 0 => {}
                    Ok(_) => {
                        break Failure { status: status::IO, message: "the lease has ended".to_string() };
                    }
                    Err(failure) => break failure,
                }
            };
            let _ = lost.send(reason).await;
        });
        if let Some(before) = self.keeper.replace(task) {
            before.abort();
        }
        Ok(id)
    }

    fn puts(&self, name: &str, presence: &[u8], entry: &[u8], lease: i64) -> Vec<TxnOp> {
        let put =
            |key: String, value: &[u8]| TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        vec![put(self.keys.entry(name), entry), put(self.keys.presence(name), presence)]
    }

    /// Whether this connection keeps a lease alive.
    pub fn keeps_lease(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| !keeper.is_finished())
    }

    /// Stores an entry, and replaces one that exists. Returns the revision that it is stored at.
    pub async fn put(
        &self,
        name: &str,
        presence: &[u8],
        entry: &[u8],
        lease: i64,
        limit: Duration,
    ) -> Result<i64> {
        let puts = self.puts(name, presence, entry, lease);
        let done = limited(limit, self.kv().txn(Txn::new().and_then(puts))).await?;
        Ok(revision_of(done.header()))
    }

    /// Stores an entry, if the presence is absent or has not changed since `revision`; 0 stands for absent. Returns the
    /// revision that it is stored at, if it is.
    pub async fn put_if(
        &self,
        name: &str,
        presence: &[u8],
        entry: &[u8],
        lease: i64,
        revision: i64,
    ) -> Result<Option<i64>> {
        let unchanged = Compare::mod_revision(self.keys.presence(name), CompareOp::Equal, revision);
        let txn = Txn::new().when([unchanged]).and_then(self.puts(name, presence, entry, lease));
        let done = limited(MAX_WAIT, self.kv().txn(txn)).await?;
        Ok(done.succeeded().then(|| revision_of(done.header())))
    }

    /// Removes an entry, if it is of this lease. Returns whether it was or there is none.
    pub async fn remove(&self, name: &str, lease: i64, limit: Duration) -> Result<bool> {
        let key = self.keys.presence(name);
        let is_own = Compare::lease(key.clone(), CompareOp::Equal, lease);
        let deletes =
            [TxnOp::delete(key.clone(), None::<DeleteOptions>), TxnOp::delete(self.keys.entry(name), None)];
        let look = [TxnOp::get(key, Some(GetOptions::new().with_keys_only()))];
        let txn = Txn::new().when([is_own]).and_then(deletes).or_else(look);
        let done = limited(limit, self.kv().txn(txn)).await?;
        let is_absent = done
            .op_responses()
            .iter()
            .any(|response| matches!(response, TxnOpResponse::Get(found) if found.kvs().is_empty()));
        Ok(done.succeeded() || is_absent)
    }

    /// The value of a key, its revision and its lease.
    pub async fn presence(&self, name: &str, limit: Duration) -> Result<Option<KeyValue>> {
        let found = limited(limit, self.kv().get(self.keys.presence(name), None)).await?;
        Ok(found.kvs().first().cloned())
    }

    /// The bytes of an entry.
    pub async fn entry(&self, name: &str, limit: Duration) -> Result<Value> {
        let found = limited(limit, self.kv().get(self.keys.entry(name), None)).await?;
        let most = self.keys.max_bytes.1;
        Ok(found.kvs().first().map_or(Value::Absent, |pair| Keys::value(pair.value(), most)))
    }

    /// What is stored under a name, both of one revision.
    pub async fn stored(&self, name: &str) -> Result<Stored> {
        let keys_only = Some(GetOptions::new().with_keys_only());
        let gets = [TxnOp::get(self.keys.presence(name), None), TxnOp::get(self.keys.entry(name), keys_only)];
        let done = limited(MAX_WAIT, self.kv().txn(Txn::new().and_then(gets))).await?;
        let mut pairs = done.op_responses().into_iter().map(|response| match response {
            TxnOpResponse::Get(found) => found.kvs().first().cloned(),
            _ => None,
        });
        let (presence, entry) = (pairs.next().flatten(), pairs.next().flatten());
        let entry_revision = entry.map_or(0, |pair| pair.mod_revision());
        Ok(Stored { presence, entry_revision, revision: revision_of(done.header()) })
    }

    /// The presence of a name, and the revision that it is of.
    pub async fn snapshot(&self, name: &str, limit: Duration) -> Result<(Option<Value>, i64)> {
        let found = limited(limit, self.kv().get(self.keys.presence(name), None)).await?;
        let value = found.kvs().first().map(|pair| self.keys.presence_value(pair.value()));
        Ok((value, revision(&found)))
    }

    /// Reads all presences, and passes each page on: there may be any number. `true` marks the first and the last one. Returns the
    /// revision that all are of.
    pub async fn snapshot_all(
        &self,
        limit: Duration,
        mut take: impl FnMut(Vec<(String, Value)>, [bool; 2]),
    ) -> Result<i64> {
        let deadline = Instant::now() + limit;
        let (mut at, mut paging) = (0, Paging::new(self.keys.agents.clone().into_bytes()));
        // The first key behind all that begin with the prefix.
        let end = format!("{}0", self.keys.agents.trim_end_matches('/'));
        loop {
            let is_first = paging.is_first();
            let options =
                GetOptions::new().with_range(end.clone()).with_limit(paging.most()).with_revision(at);
            let mut kv = self.kv();
            let found = match timeout_at(deadline, kv.get(paging.from(), Some(options))).await {
                Ok(Err(error)) if is_too_large(&error) && paging.shrink() => continue,
                Ok(found) => found.map_err(|error| failure(&error))?,
                Err(_) => return Err(late(limit)),
            };
            if at == 0 {
                at = revision(&found);
            }
            let last = found.kvs().last().map(KeyValue::key);
            let goes_on = paging.advance(last, found.more());
            let goes_on =
                goes_on.map_err(|message| Failure { status: status::IO, message: message.to_string() })?;
            let named = found.kvs().iter().filter_map(|pair| {
                Some((self.keys.name_of(pair.key())?, self.keys.presence_value(pair.value())))
            });
            take(named.collect(), [is_first, !goes_on]);
            if !goes_on {
                return Ok(at);
            }
        }
    }

    /// Watches the presences of one name or of all from a revision on. Returns the number of the watch.
    pub async fn watch(&mut self, name: Option<&str>, from: i64) -> Result<i64> {
        let options = WatchOptions::new().with_start_revision(from).with_fragment();
        match name {
            Some(name) => self.add_watch(self.keys.presence(name), options).await,
            None => self.add_watch(self.keys.agents.clone(), options.with_prefix()).await,
        }
    }

    /// Watches the entry of a name from a revision on.
    pub async fn watch_entry(&mut self, name: &str, from: i64) -> Result<i64> {
        let options = WatchOptions::new().with_start_revision(from).with_fragment();
        self.add_watch(self.keys.entry(name), options).await
    }

    async fn add_watch(&mut self, key: String, options: WatchOptions) -> Result<i64> {
        let id = self.next_watch;
        self.next_watch += 1;
        let options = options.with_watch_id(id);
        match &mut self.watch {
            Some(stream) => limited(MAX_WAIT, stream.watch(key, Some(options))).await?,
            None => {
                let mut client = self.client.watch_client().max_decoding_message_size(MAX_MESSAGE);
                self.watch = Some(limited(MAX_WAIT, client.watch(key, Some(options))).await?);
            }
        }
        Ok(id)
    }

    pub async fn unwatch(&mut self, id: i64) {
        if let Some(stream) = &mut self.watch {
            // A failure is seen by the next message.
            let _ = limited(MAX_WAIT, stream.cancel(id)).await;
        }
    }

    /// The next message of the watch. Never returns if nothing is watched.
    pub async fn next(&mut self) -> Result<WatchResponse> {
        let Some(stream) = &mut self.watch else { return std::future::pending().await };
        match stream.message().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => {
                Err(Failure { status: status::IO, message: "the server has ended the watch".to_string() })
            }
            Err(error) => Err(failure(&error)),
        }
    }
}

fn revision(found: &GetResponse) -> i64 {
    revision_of(found.header())
}

fn revision_of(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, ResponseHeader::revision)
}

/// The client and the id of the lease: the lease is revoked when the client ends, even during another call.
pub type LeaseSlot = Rc<Cell<Option<(Client, i64)>>>;

/// A channel for the loss of the lease.
pub fn losses() -> (Sender<Failure>, tokio::sync::mpsc::Receiver<Failure>) {
    channel(4)
}
