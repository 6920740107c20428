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
mod command;
mod command_queue;
pub mod cufile;
pub mod descriptor;
pub mod descriptors;
mod dynamic;
mod executor;
mod exit;
pub mod gds;
mod gusli;
mod host_names;
mod agent_identity;
mod notification_inbox;
pub mod library;
mod metadata_listener;
mod new_request;
mod notification;
mod obj;
mod peer_metadata;
mod raw_descriptors;
mod receive;
mod registration_table;
mod remote;
pub mod request_handle;
pub mod service_mail;
mod signals;
pub mod state;
mod sys;
mod task;
mod tcp_send;
mod thread;
mod ucx_log;

pub use agent::{Agent, call_end, in_call, limit, within};
pub use agent_config::{AgentConfig, SyncMode};
pub use arguments::CallOptions;
pub use command::{Command, ForListener, FoundMetadata, Import, MemoryReply, Released, Reply};
pub use descriptor::{Descriptor, MemoryType};
pub use descriptors::{DescriptorEntry, Descriptors, Owner};
pub use gusli::HostPages;
pub use new_request::{NewRequest, RequestSource};
pub use notification::Notification;
pub use raw_descriptors::{CostEstimate, PluginInfo, SegmentsId, Telemetry, ViewId};
pub use remote::{LookUp, Remote, RemoteHold};
pub use request_handle::{ListId, Operation, RequestId, RequestSide, Span};
pub use service_mail::{ServiceId, ServiceMail};
pub use state::{AgentState, RegionMemory, Registered, SpanFailure, SpanResult};
pub use sys::status_name;
pub use task::{AgentTask, Pace, TaskStep, is_short};
#[cfg(test)]
pub use thread::panic_in_step;
