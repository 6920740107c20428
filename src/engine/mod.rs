// SPDX-License-Identifier: Apache-2.0
//! The engines: each copies blocks by one family of methods. All implement [`Engine`]; only [`select`] knows which engines
//! exist.

pub mod cost;
pub mod direct;
pub mod explain;
pub mod file;
pub mod time_limit;
pub mod peer;
pub mod prepare;
pub mod preferences;
pub mod runs;
pub mod select;
pub mod single_move;

use std::time::Instant;

pub use self::cost::outcome::Candidate;
use self::preferences::Preferences;
use super::plan::Plan;
use super::run::ticket::Ticket;
use crate::base::Result;
use crate::cuda::{CallerStream, Capture};
use crate::nixl::RemoteHold;
use crate::region::Contexts;
use crate::run::TransferMethod;

/// Prepared copies between two layouts, which can be run again and again.
///
/// A trait object rather than an enum: a virtual call costs about a nanosecond per submission, and a new engine changes no
/// existing file but [`select`].
pub trait Engine: Send + Sync {
    fn method(&self) -> TransferMethod;

    /// Prepares the same kind of copies for other blocks between the same layouts. Reuses all state that does not depend on
    /// the blocks. Returns `None` if there is no such state; then an engine is selected as for a new transfer.
    fn prepare_next(&self, _plan: &Plan, _preferences: &Preferences) -> Option<Result<Box<dyn Engine>>> {
        None
    }

    /// All methods that were compared, including the one that it takes.
    fn candidates(&self) -> Vec<Candidate>;

    /// Conditions that the estimates depend on and that change, as a line of the explanation. Empty if there are none.
    fn conditions(&self) -> String {
        String::new()
    }

    /// Whether the duration of a run is estimated from earlier runs by the same method, because no model predicts it.
    fn learns_from_runs(&self) -> bool {
        false
    }

    /// Whether each run compares the destination with the source itself, so that nothing is to be compared after it.
    fn verifies(&self) -> bool {
        false
    }

    /// Number of contiguous spans that it copies. Fails if they cannot be listed.
    fn moves(&self) -> Result<u64>;

    /// Number of NIXL requests, or of reads and writes of a file. Fails if they cannot be listed.
    fn requests(&self) -> Result<u64> {
        Ok(0)
    }

    /// Bytes that it reads and discards.
    fn excess(&self) -> Result<u64> {
        Ok(0)
    }

    /// Adds the CUDA contexts that its own resources belong to.
    fn add_contexts(&self, _contexts: &mut Contexts) {}

    /// Keeps the metadata of the peer loaded during a run, if there is a peer. Fails if no further run may begin.
    fn hold_peer(&self) -> Result<Option<RemoteHold>> {
        Ok(None)
    }

    /// Starts a run. What can fail without a run comes before [`Ticket::start`]; after it, a failure is the end of the run.
    fn submit(&self, ticket: Ticket) -> Result<()>;

    /// Checks whether the last run has ended, without waiting.
    fn poll(&self) {}

    /// Uses the calling thread, which waits for the last run, to advance it. Returns early once `is_enough`, and starts
    /// nothing new after `deadline`.
    fn assist(&self, _deadline: Option<Instant>, _is_enough: &dyn Fn() -> bool) {}

    /// Ends the run in flight now if its own flag says that it was cancelled and none of its parts is in progress. By the time of the
    /// call it may be another run than the one that the caller has cancelled. Engines in which a thread finds that soon do nothing.
    fn end_if_cancelled(&self) {}

    /// The operations on streams of the caller, if the engine has any.
    fn on_streams(&self) -> Option<&dyn OnStreams> {
        None
    }
}

/// Runs that are ordered with other work on a CUDA stream of the caller.
pub trait OnStreams {
    /// Fails for a stream of another context. Returns its capture, if it is being captured into a graph.
    fn check_stream(&self, stream: CallerStream) -> Result<Option<Capture>>;

    /// Starts a run on the stream: after the work that is queued there, and before later work.
    fn submit_on(&self, stream: CallerStream, ticket: Ticket) -> Result<()>;

    /// Adds the copies to the graph that the stream is captured into. Nothing runs.
    fn capture(&self, stream: CallerStream) -> Result<()>;

    /// Makes later work on the stream wait for the first `layers` of the last run, or for all of it.
    fn delay(&self, stream: CallerStream, layers: Option<u64>) -> Result<()>;
}
