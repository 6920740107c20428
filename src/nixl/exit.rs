// SPDX-License-Identifier: Apache-2.0
//! The end of the process, from which on no agent of NIXL's is destroyed.
//!
//! `exit` runs the destructors of NIXL's static objects, and the destruction of an agent uses those objects. If the last holder
//! of an agent is released on the agent's thread, for example by a service whose last session ends, no thread waits for the
//! destruction. So the process waits for the agents that are being destroyed when it exits, and keeps the others.
//!
//! NIXL may wait for a peer that does not respond, so no thread waits for a destruction longer than [`PATIENCE`]. If NIXL does not
//! return from several, all of them are waited for no longer than that, and a tenth of a second for each.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::base::{Condvar, Count, Mutex, PerProcess, Result, at_exit, ensure, leak, log};

#[derive(Default)]
struct Exit {
    state: Mutex<State>,
    destroyed: Condvar,
    patience: SharedPatience,
}

#[derive(Default)]
struct State {
    /// What has created static objects of NIXL's: agents, and backends by plugin.
    creators: BTreeSet<String>,
    destroying: u64,
    /// When the destruction of the last of them began.
    last_began: Option<Instant>,
    has_begun: bool,
}

/// How long NIXL may take to destroy an agent while a thread waits for that.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take at least, also after other waits were in vain.
const MIN_PATIENCE: Duration = Duration::from_millis(100);

/// A forked child has none of the threads that destroy agents, and must not wait for them.
static EXIT: PerProcess<Exit> = PerProcess::new();

/// How long a thread waits for the destruction of an agent: after a wait in vain [`MIN_PATIENCE`], until a destruction ends, also if no
/// thread waits for it any more.
#[derive(Default)]
pub struct SharedPatience {
    is_used: AtomicBool,
}

impl SharedPatience {
    pub fn get() -> &'static Self {
        &EXIT.get(Exit::default).patience
    }

    /// How long a wait that begins now may take.
    pub fn left(&self) -> Duration {
        if self.is_used.load(Ordering::Relaxed) { MIN_PATIENCE } else { PATIENCE }
    }

    pub fn use_up(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }
}

thread_local! {
    /// Whether this thread destroys an agent.
    static DESTROYS: Cell<bool> = const { Cell::new(false) };
}

/// Has the process wait before it destroys the static objects that `creator` has created.
pub fn precedes(creator: &str) {
    let mut state = EXIT.get(Exit::default).state.lock();
    if state.creators.contains(creator) {
        return;
    }
    state.creators.insert(creator.to_string());
    if !at_exit::precede(wait) {
        log!(Warn, "a process that exits does not wait for agents that are being destroyed: out of memory");
    }
}

/// Fails once the process exits: NIXL's static objects do not exist any more, and a call that needs them would abort.
pub fn ensure_running() -> Result<()> {
    ensure!(
        !EXIT.get(Exit::default).state.lock().has_begun,
        InvalidState,
        "the process exits, and NIXL's objects are destroyed; use NIXL before, not in an exit handler or a static destructor"
    );
    Ok(())
}

/// Destroys an agent, unless the process exits.
pub fn destroy(agent: impl Send + 'static) {
    EXIT.get(Exit::default).destroy(agent);
}

extern "C" fn wait() {
    if !EXIT.get(Exit::default).begin(PATIENCE) {
        log!(Warn, "NIXL did not destroy an agent within {PATIENCE:?}; the process exits without it");
    }
}

impl Exit {
    fn destroy(&self, agent: impl Send + 'static) {
        let mut state = self.state.lock();
        if state.has_begun {
            drop(state);
            leak::intentionally(agent);
            return;
        }
        state.destroying += 1;
        state.last_began = Some(Instant::now());
        drop(state);
        let _destroying = Destroying::begin(self);
        drop(agent);
    }

    /// Prevents that further agents are destroyed, and waits for those that are being destroyed. Returns whether none is left
    /// `patience` after the last of them began.
    fn begin(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        state.has_begun = true;
        // A thread that exits while it destroys an agent cannot wait for itself.
        let own = u64::from(DESTROYS.get());
        if state.destroying > own {
            let others = Count(state.destroying - own, "agent");
            log!(Debug, "the process waits for the end of {others}, then exits");
        }
        let end = state.last_began.unwrap_or_else(Instant::now) + patience;
        self.destroyed.wait_while_until(state, Some(end), |state| state.destroying > own).is_ok()
    }
}

struct Destroying<'a>(&'a Exit);

impl<'a> Destroying<'a> {
    fn begin(exit: &'a Exit) -> Self {
        DESTROYS.set(true);
        Self(exit)
    }
}

impl Drop for Destroying<'_> {
    fn drop(&mut self) {
        DESTROYS.set(false);
        self.0.patience.is_used.store(false, Ordering::Relaxed);
        self.0.state.lock().destroying -= 1;
        self.0.destroyed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::{JoinHandle, spawn};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// An agent whose destruction ends when the other side of the second channel is dropped.
    struct Held(Sender<()>, Receiver<()>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            assert!(self.1.recv().is_err());
        }
    }

    /// An agent that is being destroyed by another thread until the sender is dropped.
    fn destroying(exit: &Arc<Exit>) -> (Sender<()>, JoinHandle<()>) {
        let ((begun, has_begun), (end, ended)) = (channel(), channel());
        let destroyer = exit.clone();
        let thread = spawn(move || destroyer.destroy(Held(begun, ended)));
        has_begun.recv().unwrap();
        (end, thread)
    }

    #[test]
    fn a_thread_that_exits_while_it_destroys_an_agent_does_not_wait_for_itself() {
        struct Exits(Arc<Exit>, Arc<AtomicBool>);
        impl Drop for Exits {
            fn drop(&mut self) {
                self.1.store(self.0.begin(LONG), Ordering::Relaxed);
            }
        }
        let (exit, has_ended) = (Arc::<Exit>::default(), Arc::<AtomicBool>::default());
        exit.destroy(Exits(exit.clone(), has_ended.clone()));
        assert!(has_ended.load(Ordering::Relaxed));
    }

    #[test]
    fn a_destruction_that_ends_after_a_wait_in_vain_restores_the_patience() {
        let exit = Arc::<Exit>::default();
        let (end, thread) = destroying(&exit);
        exit.patience.use_up();
        assert_eq!(exit.patience.left(), MIN_PATIENCE);
        drop(end);
        thread.join().unwrap();
        assert_eq!(exit.patience.left(), PATIENCE);
    }
}
