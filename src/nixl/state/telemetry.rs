// SPDX-License-Identifier: Apache-2.0
//! What NIXL measures of requests, and its sum for the agent. NIXL has the sum only in files and servers of its exporters.
#![allow(unsafe_code)]

use std::time::Duration;

use super::AgentState;
use crate::base::{Result, ensure, log};
use crate::nixl::call::check;
use crate::nixl::raw_descriptors::{AgentTelemetry, Telemetry};
use crate::nixl::request_handle::{Operation, RequestId, RequestState};
use crate::nixl::sys;

impl AgentState {
    /// What NIXL measured of the last run of a request.
    pub fn telemetry(&mut self, id: RequestId) -> Result<Telemetry> {
        let agent = self.agent;
        let request = self.request(id)?.raw;
        let mut telemetry = sys::nixl_capi_xfer_telemetry_s::default();
        // SAFETY: live handles, a writable output.
        let status = unsafe { sys::nixl_capi_get_xfer_telemetry(agent, request, &mut telemetry) };
        ensure!(
            status != sys::NIXL_CAPI_ERROR_NO_TELEMETRY,
            InvalidState,
            "NIXL has no telemetry of the request: create the agent with KVMEM_AGENT_TELEMETRY, and post the request first"
        );
        ensure!(
            status != sys::NIXL_CAPI_IN_PROG,
            Busy,
            "the request is in flight, and has telemetry when it is complete; wait for it"
        );
        check(status, || "get the telemetry of a request".to_string())?;
        Ok(Telemetry {
            start: Duration::from_micros(telemetry.start_time_us),
            post: Duration::from_micros(telemetry.post_duration_us),
            transfer: Duration::from_micros(telemetry.xfer_duration_us),
            bytes: telemetry.total_bytes,
            descriptors: telemetry.desc_count,
        })
    }

    /// The sum of all runs of requests so far.
    pub fn agent_telemetry(&self) -> Result<AgentTelemetry> {
        let Some(sum) = self.sum else {
            let name = self.display_name();
            crate::base::error::fail!(
                InvalidState,
                "agent '{name}' measures nothing; create it with KVMEM_AGENT_TELEMETRY"
            );
        };
        let in_flight =
            self.requests.values().filter(|request| request.state == RequestState::InFlight).count();
        Ok(AgentTelemetry { in_flight: in_flight as u64, ..sum })
    }

    /// Adds a run that has ended to the sum. Called after each change of a request's state.
    #[inline]
    pub(super) fn note_state(&mut self, id: RequestId) {
        if let Some(sum) = self.sum {
            self.add_state(sum, id);
        }
    }

    #[cold]
    fn add_state(&mut self, mut sum: AgentTelemetry, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let (state, operation) = (request.state, request.operation);
        match state {
            RequestState::InFlight => return,
            RequestState::Failed => sum.failed += 1,
            RequestState::Idle => {
                sum.succeeded += 1;
                match self.telemetry(id) {
                    Ok(measured) => add(&mut sum, operation, &measured),
                    Err(error) => log!(Warn, "agent {}: {error}", self.log_name()),
                }
            }
        }
        self.sum = Some(sum);
    }
}

fn add(sum: &mut AgentTelemetry, operation: Operation, run: &Telemetry) {
    match operation {
        Operation::Read => sum.bytes_read += run.bytes,
        Operation::Write => sum.bytes_written += run.bytes,
    }
    sum.descriptors += run.descriptors;
    sum.post += run.post;
    sum.transfer += run.transfer;
    sum.longest = sum.longest.max(run.transfer);
}
