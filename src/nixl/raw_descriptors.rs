// SPDX-License-Identifier: Apache-2.0
//! What there is of raw descriptors in an agent, and what NIXL reports of plugins and requests.

use std::collections::BTreeMap;
use std::time::Duration;

use super::descriptor::MemoryType;

/// A plugin of NIXL, or a backend that was created from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginInfo {
    pub name: String,
    pub memory_types: Vec<MemoryType>,
    /// Its parameters: the defaults of a plugin, what a backend was created with.
    pub parameters: BTreeMap<String, String>,
    /// Why it does not load.
    pub failure: Option<String>,
}

/// NIXL's estimate of the duration of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate {
    pub duration: Duration,
    /// How far the duration may be from it.
    pub margin: Duration,
    /// 0 if the backend calculates it; other values are NIXL's.
    pub method: u32,
}

/// What NIXL measured of the last run of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Telemetry {
    /// When it was posted, on the steady clock of the system.
    pub start: Duration,
    /// How long the call that posted it took.
    pub post: Duration,
    /// How long the transfer took.
    pub transfer: Duration,
    pub bytes: u64,
    /// Descriptors, after NIXL has merged neighbouring ones.
    pub descriptors: u64,
}

/// What NIXL measured of all requests of an agent, those of transfers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentTelemetry {
    pub succeeded: u64,
    pub failed: u64,
    pub in_flight: u64,
    /// Bytes that were moved from the remote side to the local one.
    pub bytes_read: u64,
    /// Bytes that were moved from the local side to the remote one.
    pub bytes_written: u64,
    /// Descriptors, after NIXL has merged neighbouring ones.
    pub descriptors: u64,
    /// Sum of the durations of the calls that posted the requests.
    pub post: Duration,
    /// Sum of the durations of the runs.
    pub transfer: Duration,
    pub longest: Duration,
    pub notifications_sent: u64,
    /// Notifications that have arrived, also those that were lost because too many waited.
    pub notifications_received: u64,
}

/// Registered descriptors of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentsId(pub(super) u64);

/// A memory view of one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewId(pub(super) u64);
