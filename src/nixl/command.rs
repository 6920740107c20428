// SPDX-License-Identifier: Apache-2.0
//! The commands that the thread of an agent executes, and how each command is undone whose caller has stopped waiting. What takes
//! many steps is an [`AgentTask`].
//!
//! A call of NIXL may return after the deadline of the caller, who has then left: a result that owns something in NIXL is released
//! at once, and everything else does no harm.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::arguments::CallOptions;
use super::descriptor::{Descriptor, MemoryType};
use super::descriptors::Descriptors;
use super::new_request::NewRequest;
use super::raw_descriptors::{AgentTelemetry, CostEstimate, PluginInfo, SegmentsId, Telemetry, ViewId};
use super::remote::{LookUp, Remote};
use super::request_handle::{ListId, RequestId, RequestSide, Span};
use super::state::{AgentState, RegionMemory, Registered, SpanResult};
use super::task::AgentTask;
use crate::base::{Giver, ProcessIdentity, Result, handoff, log};

/// Takes the outcome of a command to the thread that waits for it.
pub type Reply<R> = Giver<Result<R>>;

/// Takes the outcome of a call with the memory of a region to the thread that waits for it. NIXL may use the memory until the call
/// returns, also if that thread has left.
pub struct MemoryReply {
    reply: Reply<SpanResult>,
    late: Box<dyn FnOnce(SpanResult) + Send>,
}

impl MemoryReply {
    /// `late` holds the memory, and gets the outcome if the thread has left; otherwise it is dropped before the thread continues.
    pub fn new(reply: Reply<SpanResult>, late: impl FnOnce(SpanResult) + Send + 'static) -> Self {
        Self { reply, late: Box::new(late) }
    }

    /// For a call that no thread waits for: `late` gets each outcome.
    pub fn without_caller(late: impl FnOnce(SpanResult) + Send + 'static) -> Self {
        Self::new(handoff().0, late)
    }

    /// Gives the outcome; after `undo`, if the thread has left.
    fn give(self, outcome: SpanResult, undo: impl FnOnce(SpanResult) -> SpanResult) {
        let (mut outcome, mut late) = (Some(outcome), Some(self.late));
        self.reply.give_with(|| {
            drop(late.take());
            outcome.take().map(Ok)
        });
        if let (Some(outcome), Some(late)) = (outcome, late) {
            late(undo(outcome));
        }
    }
}

/// The properties of each queried descriptor, `None` if it does not exist.
pub type QueryResult = Vec<Option<BTreeMap<String, String>>>;

/// The layout of a peer that is imported.
pub struct Import {
    /// The agent that has exported it.
    pub peer: String,
    pub identity: Option<Descriptor>,
    /// The memory of the layout and of its service.
    pub memory: Vec<Descriptor>,
    pub process: ProcessIdentity,
}

/// The metadata of a peer that a directory has found.
pub struct FoundMetadata {
    /// The agent that has published it.
    pub peer: String,
    /// The bytes, which may be anything.
    pub metadata: Vec<u8>,
    pub look_up: LookUp,
    /// The process of that agent, if it is known.
    pub process: Option<ProcessIdentity>,
}

/// What the listen thread of a peer gets.
pub enum ForListener {
    Metadata,
    /// That of some of its memory.
    PartialMetadata(Descriptors),
    /// The request to remove its metadata.
    Withdrawal,
}

impl ForListener {
    /// What is done, for messages.
    pub(super) fn doing(&self) -> &'static str {
        match self {
            Self::Metadata => "send the metadata",
            Self::PartialMetadata(_) => "send partial metadata",
            Self::Withdrawal => "withdraw the metadata",
        }
    }
}

/// What is released when nothing uses it any more.
pub enum Released {
    Lists(Vec<ListId>),
    Requests(Vec<RequestId>),
    View(ViewId),
    Segments(SegmentsId),
    /// An object whose end follows the commands before it.
    Object(Box<dyn Any + Send>),
}

pub enum Command {
    Start(Box<dyn AgentTask>),
    /// Ends the thread once no task is left.
    Stop,
    Release(Released, Option<Reply<()>>),

    /// Creates a backend from a plugin, with parameters.
    CreateBackend(String, Vec<(String, String)>, Reply<()>),
    Plugins(Reply<Vec<PluginInfo>>),
    Backends(Reply<Vec<PluginInfo>>),
    /// The backend for files and GPU memory, or the names of the others.
    GdsBackend(Reply<std::result::Result<&'static str, String>>),
    AgentTelemetry(Reply<AgentTelemetry>),

    /// The identity of the agent. The inner result fails if no backend reaches peers.
    Identity(Reply<Result<Option<Descriptor>>>),
    LocalMetadata(Reply<Vec<u8>>),
    PartialMetadata(Descriptors, CallOptions, Reply<Vec<u8>>),
    /// Sends something to the listen thread at an address.
    SendTo((String, u16), ForListener, Reply<()>),

    /// Loads metadata of a peer, and returns its name.
    LoadRemote(Vec<u8>, Reply<String>),
    /// Loads metadata of a peer that a directory has found.
    LoadFound(Box<FoundMetadata>, Reply<()>),
    /// Asks the listen thread at an address for the metadata of a peer.
    RequestRemote(String, (String, u16), Reply<()>),
    /// The peer of a name. Fails unless its metadata is loaded and covers some memory.
    Remote(String, Vec<Descriptor>, Reply<Arc<Remote>>),
    /// The exporter of a layout. Fails unless its metadata is loaded and covers the layout.
    Exporter(Box<Import>, Reply<Arc<Remote>>),
    /// Removes the metadata of a peer.
    InvalidateRemote(String, Reply<()>),
    /// Removes the metadata of all peers, and returns their number.
    InvalidateAll(Reply<usize>),
    Connect(String, CallOptions, Reply<()>),
    /// Sends a notification to the peer of a name.
    Notify(String, Vec<u8>, Reply<()>),
    /// Sends a notification to a peer.
    NotifyRemote(Arc<Remote>, Arc<[u8]>, Reply<()>),

    /// Registers the memory of a region: all spans, or none.
    Register(RegionMemory, Vec<Descriptor>, MemoryReply),
    Deregister(RegionMemory, Registered, MemoryReply),
    /// Registers a list, and returns the stores that it is in, for messages.
    RegisterSegments(Descriptors, CallOptions, Reply<(SegmentsId, String)>),
    /// Deregisters a list. Fails while a request that uses it is in flight.
    DeregisterSegments(SegmentsId, Reply<()>),
    /// Fails if memory and storage have no backend in common.
    EnsureSharesBackend(MemoryType, Vec<Span>, Vec<Descriptor>, Reply<()>),
    /// Asks a backend for the properties of descriptors.
    Query(Descriptors, CallOptions, Reply<QueryResult>),
    /// Creates a memory view, and returns its address.
    CreateView(Descriptors, CallOptions, Reply<(ViewId, usize)>),

    /// Prepares a list: of a peer's memory or, without a name, of the local side.
    PrepareList(Option<String>, Descriptors, CallOptions, Reply<(ListId, RequestSide)>),
    /// Creates a request, and returns the storage that it uses, for messages.
    CreateRequest(Box<NewRequest>, Reply<(RequestId, RequestSide, Option<String>)>),
    Estimate(RequestId, Reply<CostEstimate>),
    /// What NIXL has measured of a request.
    Telemetry(RequestId, Reply<Telemetry>),
    BackendOf(RequestId, Reply<String>),

    #[cfg(test)]
    Test(Box<dyn FnOnce(&mut AgentState) + Send>),
}

impl Command {
    /// Executes it. A panic ends the command: its reply is dropped, which the caller sees.
    pub(super) fn execute(self, state: &mut AgentState) {
        match self {
            // The tasks and the end are those of the queue, which has taken them before.
            Self::Start(_) | Self::Stop => {}
            Self::Release(released, reply) => {
                state.release(released);
                if let Some(reply) = reply {
                    give(reply, Ok(()));
                }
            }

            Self::CreateBackend(plugin, parameters, reply) => {
                give(reply, state.create_backend(&plugin, &parameters));
            }
            Self::Plugins(reply) => give(reply, state.plugins()),
            Self::Backends(reply) => give(reply, state.backends()),
            Self::GdsBackend(reply) => give(reply, Ok(state.gds_backend())),
            Self::AgentTelemetry(reply) => give(reply, state.agent_telemetry()),

            Self::Identity(reply) => {
                give(reply, Ok(state.ensure_reaches_peers().map(|()| state.identity())));
            }
            Self::LocalMetadata(reply) => give(reply, state.local_metadata()),
            Self::PartialMetadata(list, options, reply) => {
                give(reply, state.partial_metadata(&list, &options))
            }
            Self::SendTo((host, port), sent, reply) => give(reply, state.send_to(&host, port, &sent)),

            Self::LoadRemote(metadata, reply) => give(reply, state.load_remote(&metadata)),
            Self::LoadFound(found, reply) => give(reply, state.load_peer(&found)),
            Self::RequestRemote(name, (host, port), reply) => {
                give(reply, state.request_remote(&name, &host, port))
            }
            Self::Remote(name, memory, reply) => give(reply, state.remote_with(&name, &memory)),
            Self::Exporter(import, reply) => give(reply, state.exporter(&import)),
            Self::InvalidateRemote(name, reply) => give(reply, state.invalidate_remote(&name)),
            Self::InvalidateAll(reply) => give(reply, state.invalidate_all_remotes()),
            Self::Connect(name, options, reply) => give(reply, state.connect(&name, &options)),
            Self::Notify(name, message, reply) => give(reply, state.notify(&name, &message)),
            Self::NotifyRemote(remote, message, reply) => give(reply, state.notify_remote(&remote, &message)),

            Self::Register(memory, spans, reply) => {
                let outcome = state.register_memory(&memory, &spans);
                let undo = |()| state.deregister_memory(&memory, &Registered::Spans(spans));
                reply.give(outcome, |outcome| outcome.and_then(undo));
            }
            Self::Deregister(memory, registered, reply) => {
                reply.give(state.deregister_memory(&memory, &registered), |outcome| outcome);
            }
            Self::RegisterSegments(list, options, reply) => {
                let outcome = state.register_segments(list, &options).map(|id| (id, state.store_of(id)));
                if let Some((id, _)) = late(reply, outcome) {
                    log_late(state.deregister_segments(id));
                }
            }
            Self::DeregisterSegments(id, reply) => give(reply, state.deregister_segments(id)),
            Self::EnsureSharesBackend(memory_type, memory, storage, reply) => {
                give(reply, state.ensure_shares_backend(memory_type, &memory, &storage));
            }
            Self::Query(list, options, reply) => give(reply, state.query(&list, &options)),
            Self::CreateView(list, options, reply) => {
                if let Some((id, _)) = late(reply, state.create_view(&list, &options)) {
                    state.release(Released::View(id));
                }
            }

            Self::PrepareList(owner, list, options, reply) => {
                if let Some((id, _)) = late(reply, state.prepare_of(owner.as_deref(), &list, &options)) {
                    state.release(Released::Lists(vec![id]));
                }
            }
            Self::CreateRequest(request, reply) => {
                if let Some((id, ..)) = late(reply, state.create_of(&request)) {
                    state.release(Released::Requests(vec![id]));
                }
            }
            Self::Estimate(id, reply) => give(reply, state.estimate(id, &CallOptions::default())),
            Self::Telemetry(id, reply) => give(reply, state.telemetry(id)),
            Self::BackendOf(id, reply) => give(reply, state.backend_of(id)),

            #[cfg(test)]
            Self::Test(function) => function(state),
        }
    }
}

/// Gives the outcome of a command that has nothing to undo.
fn give<R>(reply: Reply<R>, outcome: Result<R>) {
    drop(reply.give(outcome));
}

/// Gives the outcome. Returns the result if the caller has left, which has to be undone then.
fn late<R>(reply: Reply<R>, outcome: Result<R>) -> Option<R> {
    reply.give(outcome).err().and_then(Result::ok)
}

/// The call has timed out, so only the log has a failure.
fn log_late(outcome: Result<()>) {
    if let Err(error) = outcome {
        log!(Error, "{error}; the memory stays registered until its agent ends");
    }
}

impl AgentState {
    /// Releases something that nothing uses any more. Failures are logged.
    fn release(&mut self, released: Released) {
        match released {
            Released::Lists(lists) => lists.into_iter().for_each(|id| self.release_list(id)),
            Released::Requests(requests) => self.release_idle_requests(requests),
            Released::View(id) => self.release_view(id),
            Released::Segments(id) => {
                // While a request is in flight, they remain registered until the agent ends, and keep their memory.
                if let Err(error) = self.deregister_segments(id) {
                    log!(Error, "{error}; the memory of the descriptors is not freed if kvmem owns it");
                }
            }
            Released::Object(object) => drop(object),
        }
    }
}
