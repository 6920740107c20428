// SPDX-License-Identifier: Apache-2.0
//! NIXL: the library, agents with one thread each, and the work of that thread.
//!
//! All NIXL objects are in an [`state::AgentState`], which only the thread that drives the agent uses; the rest of the
//! library has ids. So the order of destruction is defined in one place, and no object outlives its agent.

pub mod agent;
pub mod agent_config;
mod arguments;
mod backend;
mod bell;
mod call;
pub mod cufile;
pub mod descriptor;
pub mod descriptors;
mod dynamic;
mod executor;
mod exit;
pub mod gds;
mod gusli;
mod handoff;
mod host;
mod identity;
mod inbox;
pub mod library;
mod listener;
mod notification;
mod obj;
mod peer_metadata;
mod raw;
mod receive;
mod remote;
pub mod request;
pub mod service;
mod signals;
pub mod state;
mod sys;
mod tcp_send;
mod thread;
mod token;
mod ucx_log;
mod unbounded;
#[cfg(test)]
mod tests;

pub use agent::{Agent, call_end, in_call, limit, within};
pub use agent_config::{AgentConfig, SyncMode};
pub use arguments::CallOptions;
pub use descriptor::{Descriptor, MemoryType};
pub use descriptors::{DescriptorEntry, Descriptors, Owner};
pub use gusli::HostPages;
pub use notification::Notification;
pub use raw::{AgentTelemetry, CostEstimate, PluginInfo, SegmentsId, Telemetry, ViewId};
pub use remote::{LookUp, Remote, RemoteHold};
pub use request::{ListId, Operation, RequestId, RequestSide, Span};
pub use service::{ServiceId, ServiceMail};
pub use state::AgentState;
pub use sys::status_name;
#[cfg(test)]
pub use thread::panic_in_step;
pub use thread::{AgentTask, Pace, TaskStep, is_short};
