// SPDX-License-Identifier: Apache-2.0
//! NIXL: finding the library, the agent and its one thread, and what is done on that thread.
//!
//! Every object of NIXL's lives in a [`driver::Driver`], which only the thread that drives the agent touches; the rest of
//! the library holds ids. So the order of teardown is written down once, and nothing outlives its agent.

pub mod agent;
mod arguments;
mod backend;
pub mod cufile;
pub mod descriptor;
pub mod driver;
mod executor;
pub mod gds;
mod handoff;
pub mod library;
mod listener;
mod metadata;
mod notification;
mod registration;
pub mod request;
mod signals;
mod sys;
mod thread;
mod ucx_log;

pub use agent::{Agent, AgentConfig, SyncMode};
pub use descriptor::{Descriptor, MemoryType};
pub use metadata::{Remote, RemoteHold};
pub use notification::Notification;
pub use request::{ListId, Operation, RequestId, Span};
pub use sys::status_name;
#[cfg(test)]
pub use thread::step_once;
pub use thread::{Step, Work};
