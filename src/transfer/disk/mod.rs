// SPDX-License-Identifier: Apache-2.0
//! The disk engines: blocks between a file and host memory, or by way of host memory between a file and a GPU.

pub mod alignment;
mod calls;
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
use super::completion::Run;
use super::in_turn::Part;
use super::plan::Plan;
use super::{Candidate, Path, Preferences};
use crate::error::{Error, Result, Status};
use crate::layout::Layout;
use crate::nixl::MemoryType;

/// A prepared transfer from or to a file.
pub struct DiskMove {
    engine: Engine,
    path: Path,
    candidates: Vec<Candidate>,
}

enum Engine {
    Host(HostIo),
    Staged(StagedIo),
}

/// What is where.
struct Sides<'a> {
    file: &'a Arc<Layout>,
    memory: &'a Arc<Layout>,
    /// Blocks go to the file.
    writes: bool,
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
        sides.ensure_allowed(is_staged, preferences)?;
        alignment::ensure_io_alignment(source, destination, plan)?;
        let asked = preferences.path.map(asked_for);
        let (io, reasons) = Io::choose(sides.is_direct(), sides.writes, asked)?;
        if let Io::Uring(uring) = &io {
            sides.file.keep(uring.clone());
        }
        let path = path(io.who(), is_staged);
        let engine = match is_staged {
            true => Engine::Staged(StagedIo::prepare(&sides, plan, io, preferences.staging_size)?),
            false => Engine::Host(HostIo::prepare(&sides, plan, io)),
        };
        Ok(Self { engine, path, candidates: candidates(&sides, is_staged, reasons) })
    }

    /// The way it takes.
    pub fn path(&self) -> Path {
        self.path
    }

    /// All ways, with the reasons against those that are not taken.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// How many stretches of memory it moves.
    pub fn moves(&self) -> u64 {
        match &self.engine {
            Engine::Host(io) => io.moves(),
            Engine::Staged(io) => io.moves(),
        }
    }

    /// How many reads or writes of a file.
    pub fn requests(&self) -> u64 {
        match &self.engine {
            Engine::Host(io) => io.requests(),
            Engine::Staged(io) => io.requests(),
        }
    }
}

impl Part for DiskMove {
    fn submit(&self, run: Run) -> Result<()> {
        match &self.engine {
            Engine::Host(io) => io.submit(run),
            Engine::Staged(io) => io.submit(run),
        }
        Ok(())
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

    fn ensure_allowed(&self, is_staged: bool, preferences: &Preferences) -> Result<()> {
        let refuse = |reason| Err(Error::new(Status::Unsupported, reason));
        if is_staged && (preferences.no_host_bounce || preferences.zero_copy) {
            return refuse("bytes between a file and GPU memory pass through host memory, which is refused");
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

fn candidates(sides: &Sides<'_>, is_staged: bool, reasons: Reasons) -> Vec<Candidate> {
    let candidate = |path, reason| Candidate { path, seconds: 0.0, reason };
    let mut all = vec![
        candidate(path(Who::Ring, is_staged), reasons.uring),
        candidate(path(Who::Threads, is_staged), reasons.calls),
    ];
    if !is_staged {
        let nixl = if sides.writes { Path::NixlFileWrite } else { Path::NixlFileRead };
        all.push(candidate(nixl, Some("it joins no neighbours in the file, and needs an agent".to_string())));
    }
    all
}
