// SPDX-License-Identifier: Apache-2.0
//! What every module may use: errors, the log, locks, threads, processes, system calls, lists, wire forms.

pub(crate) mod advice;
pub(crate) mod callback_thread;
pub(crate) mod disposal;
pub mod error;
pub(crate) mod file_limit;
pub(crate) mod file_systems;
pub mod guarded;
pub mod handoff;
pub(crate) mod keyed;
pub(crate) mod leak;
pub(crate) mod leases;
pub(crate) mod lists;
pub mod log;
pub(crate) mod log_id;
pub(crate) mod open_library;
pub(crate) mod paths;
pub mod process;
pub(crate) mod random;
pub(crate) mod retried;
pub(crate) mod shared_objects;
pub(crate) mod sorting;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod thread_pool;
pub mod wire;
