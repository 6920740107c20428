// SPDX-License-Identifier: Apache-2.0
//! The disk engines: blocks between a file and host memory, or through host memory between a file and a GPU.

mod calls;
mod gds;
mod host_io;
mod io;
mod operation;
mod planned;
mod file_requests;
mod file_sides;
mod staged;
mod uring;
mod work;

use std::sync::Arc;

use self::file_sides::FileSides;
use self::host_io::HostIo;
use self::io::{Io, Reasons};
use self::planned::Counts;
use self::staged::StagedIo;
use self::uring::Uring;
use super::{Candidate, Engine};
use crate::base::Result;
use crate::cuda::ContextIdentity;
use crate::engine::cost::outcome::Against;
use crate::engine::peer::{self, NixlMove};
use crate::engine::preferences::Preferences;
use crate::layout::Layout;
use crate::layout::cache::LayoutCache;
use crate::nixl::MemoryType;
use crate::plan::Plan;
use crate::region::Contexts;
use crate::run::{PartSequence, Run, RunPart, Start, Ticket, TransferMethod};

/// Keeps the io_uring of the files of a layout for the next transfer.
static RINGS: LayoutCache<Uring> = LayoutCache::new();

/// A prepared transfer from or to a file.
pub struct DiskMove {
    engine: Kind,
    method: TransferMethod,
    candidates: Vec<Candidate>,
}

enum Kind {
    Host(HostIo),
    Staged(StagedIo),
    Gds(NixlMove),
}

impl DiskMove {
    /// Selects the method and prepares it. `ordered` is the plan in the order of the file.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        plan: &Plan,
        ordered: Plan,
        preferences: &Preferences,
    ) -> Result<Self> {
        let sides = FileSides::new(source, destination);
        let is_staged = sides.memory.memory_type() == MemoryType::Vram;
        let against_gds = match is_staged {
            false => None,
            true => match gds::choose(&sides, plan, preferences)? {
                Ok(chosen) => return Ok(Self::by_gds(chosen)),
                Err(against) => Some(against),
            },
        };
        sides.ensure_allowed(against_gds.as_ref().map(|against| &*against.reason), preferences)?;
        let requested = preferences.method;
        let against_nixl = against_gds.unwrap_or_else(|| against_nixl([source, destination], preferences));
        let (io, reasons) = Io::choose(&sides, requested)?;
        if let Io::Uring(uring) = &io {
            RINGS.put(sides.file, uring.clone());
        }
        let method = io.method();
        let engine = match is_staged {
            true => Kind::Staged(StagedIo::prepare(&sides, ordered, io, preferences.staging_size)?),
            false => Kind::Host(HostIo::prepare(&sides, ordered, io)),
        };
        // It would be taken if it were possible.
        let is_wanted = is_staged && requested.is_none() && gds::not_worth_it(plan).is_none();
        let nixl = Candidate::new(TransferMethod::Nixl, if is_wanted { 0.0 } else { f64::INFINITY });
        Ok(Self { engine, method, candidates: candidates(nixl.against(Some(against_nixl)), reasons) })
    }

    /// The plan in the order of the file, in which its pieces are listed.
    pub fn in_file_order(source: &Layout, plan: &Plan) -> Result<Plan> {
        planned::in_file_order(plan, source.memory_type() != MemoryType::File)
    }

    fn by_gds(gds::Chosen { moved, doubt }: gds::Chosen) -> Self {
        let method = TransferMethod::Nixl;
        let staged = || Some("its bytes pass through host memory".to_string());
        let candidates = vec![
            candidate(method, doubt),
            candidate(TransferMethod::Uring, staged()),
            candidate(TransferMethod::Pread, staged()),
        ];
        Self { engine: Kind::Gds(moved), method, candidates }
    }

    /// Whether this engine moves the blocks: unless NIXL moves them between a file and host memory.
    pub fn takes(method: TransferMethod, source: &Layout, destination: &Layout) -> bool {
        let has =
            |memory_type| [source, destination].iter().any(|layout| layout.memory_type() == memory_type);
        let (has_gpu, has_file) = (has(MemoryType::Vram), has(MemoryType::File));
        match method {
            TransferMethod::Uring | TransferMethod::Pread => true,
            TransferMethod::Nixl => has_gpu && has_file,
            _ => false,
        }
    }

    fn counts(&self) -> Result<Counts> {
        match &self.engine {
            Kind::Host(io) => io.counts(),
            Kind::Staged(io) => io.counts(),
            Kind::Gds(moved) => Ok(Counts { moves: moved.moves(), requests: moved.requests()? }),
        }
    }

    /// The context that its staging memory belongs to, if any.
    fn identity(&self) -> Option<ContextIdentity> {
        match &self.engine {
            Kind::Staged(io) => Some(io.identity()),
            Kind::Host(_) | Kind::Gds(_) => None,
        }
    }
}

impl Engine for PartSequence<DiskMove> {
    fn method(&self) -> TransferMethod {
        self.first().method
    }

    fn candidates(&self) -> Vec<Candidate> {
        self.first().candidates.clone()
    }

    fn learns_from_runs(&self) -> bool {
        true
    }

    fn moves(&self) -> Result<u64> {
        self.parts().iter().map(|part| part.counts().map(|counts| counts.moves)).sum()
    }

    fn requests(&self) -> Result<u64> {
        self.parts().iter().map(|part| part.counts().map(|counts| counts.requests)).sum()
    }

    fn add_contexts(&self, contexts: &mut Contexts) {
        self.parts().iter().filter_map(DiskMove::identity).for_each(|identity| contexts.add(identity));
    }

    fn submit(&self, ticket: Ticket) -> Result<()> {
        self.start(ticket.start());
        Ok(())
    }

    /// The threads that execute requests may wait for a file system that does not respond. The thread of staging memory does not.
    fn end_if_cancelled(&self) {
        for part in self.parts() {
            if let Kind::Host(io) = &part.engine {
                io.end_if_cancelled();
            }
        }
    }
}

impl RunPart for DiskMove {
    fn prepare_start(&self, run: Run) -> Start {
        match &self.engine {
            Kind::Host(io) => io.prepare_start(run),
            Kind::Staged(io) => io.prepare_start(run),
            Kind::Gds(moved) => moved.prepare_start(run),
        }
    }
}

/// What is against NIXL between a file and host memory, where it is never taken unless it is requested.
fn against_nixl(sides: [&Arc<Layout>; 2], preferences: &Preferences) -> Against {
    match peer::ensure_possible(sides, preferences) {
        Ok(()) => Against::better("it does not merge adjacent blocks of the file"),
        Err(error) => Against::impossible(error.message().to_string()),
    }
}

fn candidates(nixl: Candidate, reasons: Reasons) -> Vec<Candidate> {
    vec![
        Candidate {
            is_impossible: reasons.is_uring_impossible,
            ..candidate(TransferMethod::Uring, reasons.uring)
        },
        candidate(TransferMethod::Pread, reasons.calls),
        nixl,
    ]
}

/// A candidate without an estimate: the throughput of files is unknown.
fn candidate(method: TransferMethod, reason: Option<String>) -> Candidate {
    Candidate::new(method, 0.0).with_reason(reason.map(Into::into))
}
