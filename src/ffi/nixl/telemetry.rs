// SPDX-License-Identifier: Apache-2.0
//! What NIXL measured of all requests of an agent.

use std::time::Duration;

use crate::ffi::agent::kvmem_agent;
use crate::ffi::common::{borrow, call, kvmem_error, kvmem_status, out};
use crate::nixl::Command;

/// NIXL's measurements of an agent since it was created: sums over all runs, those of transfers included.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_agent_telemetry {
    /// Runs that have succeeded.
    pub succeeded: u64,
    /// Runs that have failed.
    pub failed: u64,
    /// Runs that are in flight now.
    pub in_flight: u64,
    /// Bytes that were read from peers, files and objects.
    pub bytes_read: u64,
    /// Bytes that were written to peers, files and objects.
    pub bytes_written: u64,
    /// Descriptors of those runs, after NIXL has merged neighbours.
    pub descriptors: u64,
    /// Sum of the durations of the calls that posted the runs, in nanoseconds.
    pub post_ns: u64,
    /// Sum of the durations of succeeded runs, in nanoseconds. Runs may overlap.
    pub duration_ns: u64,
    /// The longest of these durations, in nanoseconds.
    pub longest_ns: u64,
    /// Notifications that were sent without a request.
    pub notifications_sent: u64,
    /// Notifications that have arrived, including those that were lost.
    pub notifications_received: u64,
}

/// Returns NIXL's measurements of an agent since it was created.
///
/// @return KVMEM_STATUS_INVALID_STATE: the agent was created without KVMEM_AGENT_TELEMETRY
///
/// Notes: kvmem_transfer_get_info has the number of requests of a transfer. NIXL measures in microseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_agent_get_telemetry(
    agent: *mut kvmem_agent,
    telemetry: *mut kvmem_agent_telemetry,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let agent = &borrow(scope, agent)?.agent;
        let telemetry = out(telemetry, "telemetry")?;
        let sum = agent.call(Command::AgentTelemetry)?;
        telemetry.write(kvmem_agent_telemetry {
            succeeded: sum.succeeded,
            failed: sum.failed,
            in_flight: sum.in_flight,
            bytes_read: sum.bytes_read,
            bytes_written: sum.bytes_written,
            descriptors: sum.descriptors,
            post_ns: nanoseconds(sum.post),
            duration_ns: nanoseconds(sum.transfer),
            longest_ns: nanoseconds(sum.longest),
            notifications_sent: sum.notifications_sent,
            notifications_received: sum.notifications_received,
        });
        Ok(())
    })
}

/// A duration as nanoseconds of the C ABI.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
