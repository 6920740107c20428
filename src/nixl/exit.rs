// SPDX-License-Identifier: Apache-2.0
//! The end of the process, from which on no agent of NIXL's is destroyed.
//!
//! `exit` runs the destructors of NIXL's static objects, and the destruction of an agent uses those objects. If the last holder
//! of an agent is released on the agent's thread, for example by a service whose last session ends, no thread waits for the
//! destruction. So the process waits for the agents that are being destroyed when it exits, and keeps the others.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::leak;
use crate::log::{Count, log};
use crate::process::PerProcess;
use crate::sync::{Condvar, Mutex};

#[derive(Default)]
struct Exit {
    state: Mutex<State>,
    destroyed: Condvar,
}

#[derive(Default)]
struct State {
    /// What has created static objects of NIXL's: agents, and backends by plugin.
    creators: BTreeSet<String>,
    /// Agents that are being destroyed.
    destroying: u64,
    has_begun: bool,
}

/// How long an exiting process waits for agents: NIXL may wait for a peer that does not respond.
const PATIENCE: Duration = Duration::from_secs(10);

/// A forked child has none of the threads that destroy agents, and must not wait for them.
static EXIT: PerProcess<Exit> = PerProcess::new();

thread_local! {
    /// Whether this thread destroys an agent.
    static DESTROYS: Cell<bool> = const { Cell::new(false) };
}

/// Has the process wait before it destroys the static objects that `creator` has created. `exit` first calls what was
/// registered last, so each new creator registers the wait again.
pub fn precedes(creator: &str) {
    let mut state = EXIT.get(Exit::default).state.lock();
    if state.creators.contains(creator) {
        return;
    }
    state.creators.insert(creator.to_string());
    // SAFETY: a function that does not unwind. If this library is unloaded, it is called then.
    if unsafe { libc::atexit(at_exit) } != 0 {
        log!(Warn, "a process that exits does not wait for agents that are being destroyed: out of memory");
    }
}

/// Destroys an agent, unless the process exits.
pub fn destroy(agent: impl Send + 'static) {
    let exit = EXIT.get(Exit::default);
    let mut state = exit.state.lock();
    if state.has_begun {
        drop(state);
        leak::intentionally(agent);
        return;
    }
    state.destroying += 1;
    drop(state);
    let _destroying = Destroying::begin(exit);
    drop(agent);
}

struct Destroying(&'static Exit);

impl Destroying {
    fn begin(exit: &'static Exit) -> Self {
        DESTROYS.set(true);
        Self(exit)
    }
}

impl Drop for Destroying {
    fn drop(&mut self) {
        DESTROYS.set(false);
        self.0.state.lock().destroying -= 1;
        self.0.destroyed.notify_all();
    }
}

extern "C" fn at_exit() {
    let exit = EXIT.get(Exit::default);
    let mut state = exit.state.lock();
    state.has_begun = true;
    // A thread that exits while it destroys an agent cannot wait for itself.
    let own = u64::from(DESTROYS.get());
    if state.destroying > own {
        log!(
            Debug,
            "the process waits for the end of {}, then exits",
            Count(state.destroying - own, "agent")
        );
    }
    let end = Instant::now() + PATIENCE;
    while state.destroying > own {
        let now = Instant::now();
        if now >= end {
            log!(Warn, "NIXL did not destroy an agent within {PATIENCE:?}; the process exits without it");
            return;
        }
        state = exit.destroyed.wait_timeout(state, end - now).0;
    }
}
