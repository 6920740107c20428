// SPDX-License-Identifier: Apache-2.0
//! How an agent is configured.

use std::time::Duration;

use super::sys;

/// How NIXL guards an agent against its own callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Not at all: this library calls from one thread at a time. NIXL uses one lock instead if a thread of its own exchanges
    /// metadata. Without a progress thread UCX has no locks for its callers either.
    None,
    Strict,
    ReadWrite,
}

/// Longer than any registration takes: page-locking 1 TiB takes about two minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// NIXL's own progress thread serves peers while the agent's thread sleeps.
    pub progress_thread: bool,
    /// How long it sleeps between rounds; also how often this library drives an idle agent without one.
    pub progress_delay: Duration,
    /// A thread of NIXL that serves peers which fetch metadata by address.
    pub listen_thread: bool,
    pub listen_port: u16,
    /// How long it sleeps between rounds.
    pub listen_delay: Duration,
    /// How NIXL guards the agent.
    pub sync_mode: SyncMode,
    pub telemetry: bool,
    /// How long a call without a time of its own waits for the agent's thread, which may be in a call of NIXL; `None` for ever.
    pub call_timeout: Option<Duration>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            progress_thread: true,
            progress_delay: Duration::from_millis(1),
            listen_thread: false,
            listen_port: 8888,
            listen_delay: Duration::from_millis(100),
            sync_mode: SyncMode::None,
            telemetry: false,
            call_timeout: Some(CALL_TIMEOUT),
        }
    }
}

impl AgentConfig {
    pub(super) fn raw(&self) -> sys::nixl_capi_agent_config_t {
        sys::nixl_capi_agent_config_t {
            enable_prog_thread: self.progress_thread,
            enable_listen_thread: self.listen_thread,
            listen_port: self.listen_port.into(),
            thread_sync: match self.sync_mode {
                SyncMode::None => 0,
                SyncMode::Strict => 1,
                SyncMode::ReadWrite => 2,
            },
            num_workers: 1,
            pthr_delay_us: micros(self.progress_delay),
            lthr_delay_us: micros(self.listen_delay),
            capture_telemetry: self.telemetry,
        }
    }
}

/// Rounds up, because 0 would be no delay.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
