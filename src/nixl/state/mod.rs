// SPDX-License-Identifier: Apache-2.0
//! The NIXL objects of one agent, and the order in which they are destroyed.
//!
//! The methods are in the files of the objects that they handle.
#![allow(unsafe_code)]

mod backends;
mod discovery;
mod metadata;
mod notifications;
mod stored_objects;
mod peers;
mod raw_requests;
mod region_memory;
mod registrations;
mod request_creation;
mod requests;
mod segments;
mod telemetry;

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub use region_memory::{RegionMemory, Registered, SpanFailure, SpanResult};

use super::agent_config::AgentConfig;
use super::agent_identity::Identity;
use super::backend::Backend;
use super::call::{c_string, check};
use super::notification::{KnownNames, NotificationSupport};
use super::notification_inbox::NotificationInbox;
use super::raw_descriptors::{AgentTelemetry, ViewId};
use super::registration_table::RegistrationTable;
use super::remote::{LoadedPeer, Remote};
use super::request_handle::{ById, ListId, PreparedList, RequestHandle, RequestId};
use super::service_mail::Services;
use super::{exit, signals, sys};
use crate::base::{Error, LogId, Result, log, retried};

/// The NIXL objects of one agent. Only the thread that drives the agent uses it.
pub struct AgentState {
    pub(super) agent: sys::nixl_capi_agent_t,
    pub(super) name: Arc<CStr>,
    log_id: LogId,
    /// By plugin.
    pub(super) backends: BTreeMap<String, Backend>,
    pub(super) registered: RegistrationTable,
    pub(super) views: HashMap<ViewId, sys::nixl_capi_mem_view_t>,
    pub(super) peers: HashMap<String, LoadedPeer>,
    /// Peers that were invalidated while transfers with them were in flight. NIXL forgets them when these have ended.
    pub(super) retired: Vec<Arc<Remote>>,
    /// Its own identity, once a backend reaches peers.
    pub(super) identity: Option<Identity>,
    pub(super) lists: ById<ListId, PreparedList>,
    pub(super) requests: ById<RequestId, RequestHandle>,
    /// Requests that could not be released: intentionally leaked, and kept reachable so that leak checkers stay quiet.
    pub(super) unreleased: Vec<RequestHandle>,
    pub(super) inbox: NotificationInbox,
    /// Names that may be those of peers.
    known_names: KnownNames,
    /// Why the last look for messages has failed.
    look_failure: Option<Error>,
    /// Whether this looks for messages of peers, for threads that wait for the agent.
    pub(super) is_looking: Arc<AtomicBool>,
    /// The messages for services of this process.
    pub(crate) services: Services,
    pub(super) carrier: NotificationSupport,
    pub(super) uses_gpu: bool,
    pub(in crate::nixl) has_progress_thread: bool,
    /// Whether peers can change what is loaded of them.
    pub(super) has_listen_thread: bool,
    /// The sum of what NIXL measured; `None` if the agent measures nothing.
    pub(super) sum: Option<AgentTelemetry>,
    next_id: u64,
}

impl AgentState {
    /// Creates the agent. The library must be loaded.
    pub(super) fn create(name: &str, log_id: LogId, config: &AgentConfig) -> Result<Self> {
        exit::ensure_running()?;
        let name = c_string("the agent's name", name)?;
        let raw = config.raw();
        let mut agent = ptr::null_mut();
        let _dispositions = signals::Preserved::new();
        // SAFETY: the library is loaded; both inputs live through the call.
        let status = unsafe { sys::nixl_capi_create_configured_agent(name.as_ptr(), &raw, &mut agent) };
        check(status, || format!("create agent '{}'", name.to_string_lossy()))
            .map_err(|error| explain_creation(error, config))?;
        exit::precedes("agents");
        let mut state = Self::around(agent, name.into(), log_id);
        state.has_progress_thread = config.progress_thread;
        state.has_listen_thread = config.listen_thread;
        state.sum = config.telemetry.then(AgentTelemetry::default);
        Ok(state)
    }

    /// The state of an agent that has nothing yet.
    fn around(agent: sys::nixl_capi_agent_t, name: Arc<CStr>, log_id: LogId) -> Self {
        Self {
            agent,
            name,
            log_id,
            backends: BTreeMap::new(),
            registered: RegistrationTable::default(),
            views: HashMap::new(),
            peers: HashMap::new(),
            retired: Vec::new(),
            identity: None,
            lists: ById::default(),
            requests: ById::default(),
            unreleased: Vec::new(),
            inbox: NotificationInbox::default(),
            known_names: KnownNames::default(),
            look_failure: None,
            is_looking: Arc::default(),
            services: Services::default(),
            carrier: NotificationSupport::Unknown,
            uses_gpu: false,
            has_progress_thread: false,
            has_listen_thread: false,
            sum: None,
            next_id: 0,
        }
    }

    /// The agent's name, for messages.
    pub(super) fn display_name(&self) -> std::borrow::Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// The number and name of the agent for log messages: several agents of a process may have the same name.
    pub(super) fn log_name(&self) -> String {
        format!("{} '{}'", self.log_id, self.display_name())
    }

    /// Whether it has to do with GPU memory, its own or a peer's.
    pub(super) fn uses_gpu(&self) -> bool {
        self.uses_gpu
    }

    /// Whether it has a backend that may write files: any but UCX.
    pub(super) fn may_write_files(&self) -> bool {
        self.backends.keys().any(|plugin| plugin != "UCX")
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

#[cfg(test)]
impl AgentState {
    /// One without NIXL, for code that calls none of it. It must not be dropped.
    pub(super) fn unloaded() -> std::mem::ManuallyDrop<Self> {
        std::mem::ManuallyDrop::new(Self::around(ptr::null_mut(), c"".into(), LogId::next()))
    }
}

impl Drop for AgentState {
    /// Requests, then views and prepared lists, then remotes, then registrations, then backends, then the agent.
    fn drop(&mut self) {
        let requests: Vec<_> = self.requests.keys().copied().collect();
        self.release_idle_requests(requests);
        let views: Vec<_> = self.views.keys().copied().collect();
        views.into_iter().for_each(|id| self.release_view(id));
        let lists: Vec<_> = self.lists.keys().copied().collect();
        lists.into_iter().for_each(|id| self.release_list(id));
        let retired = std::mem::take(&mut self.retired);
        let peers = self.peers.drain().map(|(_, peer)| peer.remote);
        let remotes: Vec<_> = peers.chain(retired).collect();
        for remote in remotes {
            if let Err(error) = self.forget(&remote) {
                log!(Warn, "{error}");
            }
        }
        for id in self.registered.ids() {
            if let Err(error) = self.deregister_segments(id) {
                log!(Warn, "{error}");
            }
        }
        self.backends.clear();
        // SAFETY: the agent is ours, and nothing that points into it is left.
        let status = unsafe { sys::nixl_capi_destroy_agent(self.agent) };
        if status != sys::NIXL_CAPI_SUCCESS {
            log!(Warn, "destroy agent {}: {}", self.log_name(), sys::status_name(status));
        }
    }
}

/// NIXL does not say why it can't create an agent. The usual reasons are a port that another program listens on, and a file of
/// settings that it cannot read.
fn explain_creation(error: Error, config: &AgentConfig) -> Error {
    let error = settings_file().into_iter().fold(error, Error::followed_by);
    let port = config.listen_port;
    match config.listen_thread.then(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))) {
        Some(Err(reason)) => error.followed_by(format!(
            "its listen thread cannot listen on TCP port {port}: {reason}; set listen_port to another port"
        )),
        _ => error,
    }
}

/// What may be wrong with the file of NIXL's settings.
fn settings_file() -> Option<String> {
    let (file, named) = match std::env::var_os("NIXL_CONFIG_FILE") {
        Some(file) => (PathBuf::from(file), "NIXL_CONFIG_FILE names"),
        None => (PathBuf::from(std::env::var_os("HOME")?).join(".nixl.cfg"), "is in HOME"),
    };
    let path = file.display();
    match retried::open(&file, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => {
            Some(format!("NIXL reads its settings from {path}, which {named}; check that it is valid TOML"))
        }
        Err(Errno::NOENT) if named.ends_with("HOME") => None,
        Err(errno) => Some(
            Error::errno(format!("NIXL cannot read its settings from {path}, which {named}"), errno)
                .message()
                .to_string(),
        ),
    }
}
