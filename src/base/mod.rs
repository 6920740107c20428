// SPDX-License-Identifier: Apache-2.0
//! What every module may use: errors, the log, locks, threads, processes, system calls, lists, wire forms.

pub(crate) mod advice;
pub(crate) mod at_exit;
pub(crate) mod by_deadline;
pub(crate) mod callback_thread;
pub(crate) mod disposal;
pub mod error;
pub(crate) mod event_fd;
pub(crate) mod file_limit;
pub(crate) mod file_systems;
pub(crate) mod folder_lock;
pub(crate) mod gauge;
pub mod guarded;
pub mod handoff;
pub(crate) mod keyed;
pub(crate) mod leak;
pub(crate) mod leases;
pub(crate) mod lists;
pub mod log;
#[cfg(kvmem_model)]
pub(crate) mod modelled;
pub(crate) mod nvtx;
pub(crate) mod one_line;
pub(crate) mod open_library;
pub(crate) mod paths;
pub mod process;
pub(crate) mod random;
pub(crate) mod reported;
pub(crate) mod retried;
pub(crate) mod shared_objects;
pub(crate) mod sorting;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
pub(crate) mod thread;
pub(crate) mod thread_pool;
pub(crate) mod timeouts;
pub(crate) mod turns;
pub mod wire;
pub(crate) mod work_thread;

pub(crate) use by_deadline::by_deadline;
pub use error::{Cause, Error, Result, Status};
pub(crate) use error::{ensure, error, fail};
pub(crate) use event_fd::EventFd;
pub(crate) use gauge::{Counted, Gauge};
pub use guarded::guarded;
pub(crate) use handoff::{Giver, Taken, Taker, handoff};
pub(crate) use keyed::Keyed;
pub(crate) use leases::{Lease, Leases};
pub(crate) use log::{Count, LogId, Microseconds, Milliseconds, log};
pub(crate) use open_library::OpenLibrary;
pub(crate) use process::{LocalFd, PerProcess, ProcessIdentity};
pub(crate) use random::random;
pub(crate) use shared_objects::SharedObjects;
pub(crate) use sync::{Condvar, Mutex, MutexGuard, atomic};
pub(crate) use thread_pool::{Once, Pool, Shared};
pub(crate) use timeouts::{deadline_of, earlier, has_passed, time_left};
pub(crate) use turns::{Turn, Turns};
pub(crate) use work_thread::{Promise, WorkThread};
