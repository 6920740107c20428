// SPDX-License-Identifier: Apache-2.0
//! NIXL: finding the library, the agent and its one thread, and what is done on that thread.
//!
//! Every object of NIXL's lives in a [`state::AgentState`], which only the thread that drives the agent touches; the rest of
//! the library holds ids. So the order of teardown is written down once, and nothing outlives its agent.

pub mod agent;
pub mod agent_config;
mod arguments;
mod backend;
mod call;
pub mod cufile;
pub mod descriptor;
mod executor;
pub mod gds;
mod handoff;
pub mod library;
mod listener;
mod notification;
mod receive;
mod remote;
pub mod request;
mod signals;
pub mod state;
mod sys;
mod thread;
mod ucx_log;

pub use agent::Agent;
pub use agent_config::{AgentConfig, SyncMode};
pub use descriptor::{Descriptor, MemoryType};
pub use notification::Notification;
pub use remote::{Remote, RemoteHold};
pub use request::{ListId, Operation, RequestId, Span};
pub use state::AgentState;
pub use sys::status_name;
#[cfg(test)]
pub use thread::step_once;
pub use thread::{AgentTask, Step};
