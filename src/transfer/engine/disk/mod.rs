// SPDX-License-Identifier: Apache-2.0
//! The disk engines: blocks between a file and host memory, or by way of host memory between a file and a GPU.

mod calls;
mod gds;
mod host;
mod io;
mod operation;
mod requests;
mod staged;
mod uring;

use std::sync::Arc;

use self::host::HostIo;
use self::io::{Io, Reasons, Who};
use self::staged::StagedIo;
use super::nixl::NixlMove;
use crate::cuda::ContextIdentity;
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::nixl::MemoryType;
use crate::transfer::plan::Plan;
use crate::transfer::run::steps::Part;
use crate::transfer::run::{Run, Start};
use crate::transfer::{Candidate, Path, Preferences};

/// A prepared transfer from or to a file.
pub struct DiskMove {
    engine: Engine,
    path: Path,
    candidates: Vec<Candidate>,
}

enum Engine {
    Host(HostIo),
    Staged(StagedIo),
    Gds(NixlMove),
}

/// What is where.
struct Sides<'a> {
    file: &'a Arc<Layout>,
    memory: &'a Arc<Layout>,
    /// Blocks go to the file.
    writes: bool,
}

/// Refuses what the caller's flags rule out between a file and host memory, whoever does the I/O.
pub fn ensure_allowed(
    source: &Arc<Layout>,
    destination: &Arc<Layout>,
    preferences: &Preferences,
) -> Result<()> {
    Sides::of(source, destination).ensure_allowed(None, preferences)
}

impl DiskMove {
    /// Chooses who does the I/O and prepares it.
    pub fn prepare(
        source: &Arc<Layout>,
        destination: &Arc<Layout>,
        plan: &Plan,
        preferences: &Preferences,
    ) -> Result<Self> {
        let sides = Sides::of(source, destination);
        let is_staged = sides.memory.memory_type() == MemoryType::Vram;
        crate::transfer::plan::alignment::ensure_io_alignment(source, destination, plan)?;
        let against_gds = match is_staged {
            false => None,
            true => match gds::choose(&sides, plan, preferences)? {
                Ok(taken) => return Ok(Self::by_gds(&sides, taken)),
                Err(reason) => Some(reason),
            },
        };
        sides.ensure_allowed(against_gds.as_deref(), preferences)?;
        let asked = preferences.path.map(asked_for);
        let is_gds_impossible = against_gds.is_some() && asked.is_none() && gds::is_worth_it(plan);
        let (io, reasons) = Io::choose(sides.is_direct(), sides.writes, asked)?;
        if let Io::Uring(uring) = &io {
            sides.file.keep(uring.clone());
        }
        let path = path(io.who(), is_staged);
        let engine = match is_staged {
            true => Engine::Staged(StagedIo::prepare(&sides, plan, io, preferences.staging_size)?),
            false => Engine::Host(HostIo::prepare(&sides, plan, io)),
        };
        Ok(Self { engine, path, candidates: candidates(&sides, against_gds, reasons, is_gds_impossible) })
    }

    fn by_gds(sides: &Sides<'_>, taken: gds::Taken) -> Self {
        let (path, gds::Taken { moved, doubt }) = (gds::path(sides), taken);
        let staged = || Some("its bytes pass through host memory".to_string());
        let candidates = vec![
            candidate(path, doubt),
            candidate(Path::UringStaged, staged()),
            candidate(Path::PreadStaged, staged()),
        ];
        Self { engine: Engine::Gds(moved), path, candidates }
    }

    /// Whether this is the room for it: all that NIXL does not move between a file and host memory.
    pub fn takes(path: Path, source: &Layout, destination: &Layout) -> bool {
        let by_nixl = matches!(path, Path::NixlFileRead | Path::NixlFileWrite);
        let has_gpu = [source, destination].iter().any(|layout| layout.memory_type() == MemoryType::Vram);
        path.is_disk() || (by_nixl && has_gpu)
    }

    /// The way it takes.
    pub fn path(&self) -> Path {
        self.path
    }

    /// All ways, with the reasons against those that are not taken.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The context that what it was prepared with goes with, if any.
    pub fn identity(&self) -> Option<ContextIdentity> {
        match &self.engine {
            Engine::Staged(io) => Some(io.identity()),
            Engine::Host(_) | Engine::Gds(_) => None,
        }
    }

    /// How many stretches of memory it moves.
    pub fn moves(&self) -> u64 {
        match &self.engine {
            Engine::Host(io) => io.moves(),
            Engine::Staged(io) => io.moves(),
            Engine::Gds(moved) => moved.moves(),
        }
    }

    /// How many reads or writes of a file.
    pub fn requests(&self) -> u64 {
        match &self.engine {
            Engine::Host(io) => io.requests(),
            Engine::Staged(io) => io.requests(),
            Engine::Gds(moved) => moved.requests(),
        }
    }
}

impl Part for DiskMove {
    fn prepare_start(&self, run: Run) -> Start {
        match &self.engine {
            Engine::Host(io) => io.prepare_start(run),
            Engine::Staged(io) => io.prepare_start(run),
            Engine::Gds(moved) => moved.prepare_start(run),
        }
    }
}

impl<'a> Sides<'a> {
    fn of(source: &'a Arc<Layout>, destination: &'a Arc<Layout>) -> Self {
        match destination.memory_type() {
            MemoryType::File => Self { file: destination, memory: source, writes: true },
            _ => Self { file: source, memory: destination, writes: false },
        }
    }

    /// Whether all of it bypasses the page cache.
    fn is_direct(&self) -> bool {
        let mut files = self.file.memory().regions().iter().filter_map(|region| region.file());
        files.all(|file| file.is_direct())
    }

    /// Refuses what the caller's flags rule out; between a file and a GPU there is a reason against GDS.
    fn ensure_allowed(&self, against_gds: Option<&str>, preferences: &Preferences) -> Result<()> {
        let refuse = |reason: &str| Err(Error::new(Status::Unsupported, reason.to_string()));
        if let (Some(reason), true) = (against_gds, preferences.no_host_bounce || preferences.zero_copy) {
            return refuse(&format!(
                "bytes between a file and GPU memory pass through host memory, which is refused; by GPUDirect Storage \
                 they can't go: {reason}"
            ));
        }
        if preferences.zero_copy && !self.is_direct() {
            return refuse(
                "bytes of a buffered file pass through the page cache, which is refused; open it for direct I/O",
            );
        }
        Ok(())
    }
}

fn path(who: Who, is_staged: bool) -> Path {
    match (who, is_staged) {
        (Who::Ring, false) => Path::Uring,
        (Who::Threads, false) => Path::Pread,
        (Who::Ring, true) => Path::UringStaged,
        (Who::Threads, true) => Path::PreadStaged,
    }
}

fn asked_for(path: Path) -> Who {
    if matches!(path, Path::Uring | Path::UringStaged) { Who::Ring } else { Who::Threads }
}

fn candidates(
    sides: &Sides<'_>,
    against_gds: Option<String>,
    reasons: Reasons,
    is_gds_impossible: bool,
) -> Vec<Candidate> {
    let is_staged = against_gds.is_some();
    let against_nixl =
        against_gds.unwrap_or_else(|| "it joins no neighbours in the file, and needs an agent".to_string());
    vec![
        Candidate {
            is_impossible: reasons.is_uring_impossible,
            ..candidate(path(Who::Ring, is_staged), reasons.uring)
        },
        candidate(path(Who::Threads, is_staged), reasons.calls),
        Candidate { is_impossible: is_gds_impossible, ..candidate(gds::path(sides), Some(against_nixl)) },
    ]
}

/// Nobody knows how fast a file is.
fn candidate(path: Path, reason: Option<String>) -> Candidate {
    Candidate { path, seconds: 0.0, reason, is_impossible: false }
}
