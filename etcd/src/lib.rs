// SPDX-License-Identifier: Apache-2.0
//! The client of etcd that libkvmem.so loads when a directory in etcd is created.
//!
//! It is a library of its own because gRPC and TLS are as large as the rest of kvmem, and most programs need neither. Both
//! libraries exchange bytes: no object of one is freed by the other. Each client has one thread, which runs a tokio runtime
//! of its own; nothing runs before a client is opened or after it is closed.

mod client;
mod connection;
mod paging;
#[path = "../../src/directory/etcd/protocol.rs"]
mod protocol;
mod session;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use protocol::{ABI, Api, Command, DECISION_NONE, Message, Options, Receive};

/// Sends messages to libkvmem.so.
#[derive(Clone, Copy)]
pub(crate) struct Sink {
    receive: Receive,
    context: *mut c_void,
}

// SAFETY: libkvmem.so promises that the context may be used on the thread of the client.
unsafe impl Send for Sink {}

impl Sink {
    /// Sends a message, and returns the decision of its receiver.
    pub(crate) fn send(&self, message: &Message) -> u32 {
        let Ok(bytes) = minicbor_serde::to_vec(message) else { return DECISION_NONE };
        // SAFETY: the context is valid until the client is closed; the bytes live through the call.
        unsafe { (self.receive)(self.context, bytes.as_ptr(), bytes.len()) }
    }
}

struct Client {
    commands: Option<UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

unsafe extern "C" fn open(
    options: *const u8,
    size: usize,
    receive: Receive,
    context: *mut c_void,
) -> *mut c_void {
    let start = || {
        // SAFETY: by contract.
        let bytes = unsafe { std::slice::from_raw_parts(options, size) };
        let options: Options = minicbor_serde::from_slice(bytes).ok()?;
        let sink = Sink { receive, context };
        let (commands, receiver) = unbounded_channel();
        let thread = std::thread::Builder::new().name("kvmem-etcd".to_string());
        let run = move || {
            // `Sink` as a whole: its fields alone may not be moved to another thread.
            let sink: Sink = sink;
            if catch_unwind(AssertUnwindSafe(|| client::run(options, receiver, sink))).is_err() {
                sink.send(&Message::Ended);
            }
        };
        #[expect(clippy::disallowed_methods, reason = "the library blocks signals during this call")]
        let thread = thread.spawn(run).ok()?;
        Some(Client { commands: Some(commands), thread: Some(thread) })
    };
    let client = catch_unwind(AssertUnwindSafe(start)).ok().flatten();
    client.map_or(std::ptr::null_mut(), |client| Box::into_raw(Box::new(client)).cast())
}

unsafe extern "C" fn send(client: *mut c_void, bytes: *const u8, size: usize) {
    let queue = || {
        // SAFETY: a live client, and readable bytes, by contract.
        let (client, bytes) = unsafe { (&*client.cast::<Client>(), std::slice::from_raw_parts(bytes, size)) };
        if let (Some(commands), Ok(command)) = (&client.commands, minicbor_serde::from_slice(bytes)) {
            let _ = commands.send(command);
        }
    };
    let _ = catch_unwind(AssertUnwindSafe(queue));
}

unsafe extern "C" fn close(client: *mut c_void) {
    let end = || {
        // SAFETY: a live client, which is not used again, by contract.
        let mut client = unsafe { Box::from_raw(client.cast::<Client>()) };
        drop(client.commands.take());
        if let Some(thread) = client.thread.take() {
            let _ = thread.join();
        }
    };
    let _ = catch_unwind(AssertUnwindSafe(end));
}

static API: Api = Api { abi: ABI, reserved: 0, open, send, close };

/// Returns the functions of this library. libkvmem.so checks their version.
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_etcd_api() -> *const Api {
    &API
}
