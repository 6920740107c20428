// SPDX-License-Identifier: Apache-2.0
//! The messages between libkvmem.so and libkvmem_etcd.so, in CBOR. Both compile this file; [`ABI`] changes with it.
#![allow(unsafe_code)]

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The version of the messages and of [`Api`].
pub const ABI: u32 = 5;

/// Receives a message, on the thread of the client, and returns a decision. The bytes are valid during the call.
pub type Receive = unsafe extern "C" fn(context: *mut std::ffi::c_void, bytes: *const u8, size: usize) -> u32;

/// Nothing is to be decided, or done.
pub const DECISION_NONE: u32 = 0;
/// A foreign value is that of another process, and remains.
pub const DECISION_YIELD: u32 = 1;
/// A foreign value is damage, and is replaced.
pub const DECISION_RESTORE: u32 = 2;

/// The functions of libkvmem_etcd.so.
#[repr(C)]
pub struct Api {
    /// [`ABI`].
    pub abi: u32,
    /// 0.
    pub reserved: u32,
    /// Starts a client with [`Options`] in CBOR. Returns NULL if its thread cannot be started. The first message is
    /// [`Message::Opened`].
    pub open: unsafe extern "C" fn(
        options: *const u8,
        size: usize,
        receive: Receive,
        context: *mut std::ffi::c_void,
    ) -> *mut std::ffi::c_void,
    /// Queues a [`Command`] in CBOR.
    pub send: unsafe extern "C" fn(client: *mut std::ffi::c_void, bytes: *const u8, size: usize),
    /// Ends a client. No message is received after it returns.
    pub close: unsafe extern "C" fn(client: *mut std::ffi::c_void),
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Options {
    /// URLs.
    pub endpoints: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// PEM certificates of the authorities that may sign the certificate of the server; `None` for the authorities of the system.
    pub authority: Option<ByteBuf>,
    /// The certificate of this client and its key, in PEM.
    pub identity: Option<(ByteBuf, ByteBuf)>,
    /// The name of the user, and the password.
    pub user: Option<(String, String)>,
    /// How long an entry exists after its process has ended.
    pub lease_seconds: u32,
    /// The most bytes of a presence, and of an entry. Larger values are not passed on.
    pub max_bytes: (usize, usize),
}

/// A request, whose reply is [`Message::Done`].
#[derive(Serialize, Deserialize)]
pub struct Command {
    pub id: u64,
    /// Milliseconds until the reply is of no use.
    pub timeout_ms: Option<u64>,
    pub request: Request,
}

/// A request. Names are encoded.
#[derive(Serialize, Deserialize)]
pub enum Request {
    /// Stores a presence and an entry.
    Publish {
        name: String,
        presence: ByteBuf,
        entry: ByteBuf,
    },
    /// Removes an entry that was published.
    Withdraw(String),
    Entry(String),
    Presence(String),
    /// Watches one name, or all.
    Watch(Option<String>),
    /// Ends that.
    Unwatch(Option<String>),
}

#[derive(Clone, Serialize, Deserialize)]
pub enum Value {
    /// There is none.
    Absent,
    Bytes(ByteBuf),
    /// It has this many bytes, which are more than are passed on; 0 if their number is not known.
    TooLarge(usize),
}

/// Why something failed. Never contains a secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Failure {
    pub status: i32,
    pub message: String,
}

#[derive(Serialize, Deserialize)]
pub enum Message {
    /// etcd was reached for the first time, or not.
    Opened(Result<(), Failure>),
    Done {
        id: u64,
        /// The value that was read, or [`Value::Absent`].
        result: Result<Value, Failure>,
    },
    /// The presence under a name that is watched has changed.
    Changed(String, Value),
    /// All presences: of one name, or of all, in parts that follow each other.
    Snapshot {
        /// The name; `None` for all.
        scope: Option<String>,
        states: Vec<(String, Value)>,
        /// It is the first part. An earlier snapshot without a last part has failed.
        is_first: bool,
        /// It is the last part: names in no part are absent.
        is_last: bool,
    },
    /// Another value is stored under a name that was published. A decision is returned.
    Foreign {
        name: String,
        own: ByteBuf,
        /// The other value.
        value: Value,
    },
    /// A name that was published was missing or damaged, and is published again.
    Restored(String),
    /// etcd cannot be reached.
    Interrupted(Failure),
    /// It is reached again, and all snapshots were sent.
    Resumed,
    Log(String),
    /// The client has ended by a bug: no request will get a reply.
    Ended,
}
