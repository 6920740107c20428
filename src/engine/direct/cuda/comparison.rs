// SPDX-License-Identifier: Apache-2.0
//! Compares the paths of one transfer: the estimated duration of each, the reason if one is not possible, and
//! the best of the others.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::graphs::GraphPath;
use super::work::copy_task::CopyTask;
use super::work::division::Division;
use super::work::path_limits::PathLimits;
use crate::base::error::{Error, Result, Status};
use crate::copy::gpu::device::device_state::DeviceState;
use crate::copy::gpu::gpu_sides::CudaSides;
use crate::engine::cost::gpu::kernel_access::KernelAccess;
use crate::engine::cost::gpu::model as cost;
use crate::engine::cost::gpu::model::{CopyCase, Staged};
use crate::engine::cost::gpu::quick::is_quick;
use crate::engine::cost::gpu::rates::known;
use crate::engine::cost::gpu::rates::known::Costs;
use crate::engine::cost::gpu::rates::observed::{CostObserver, Measurement};
use crate::engine::cost::outcome::{Candidate, Reason};
use crate::engine::preferences::Preferences;
use crate::plan::Plan;
use crate::run::path::TransferPath;

/// Fewer bytes are not staged: the copy engine would mostly wait for the kernel.
const MIN_STAGED: u64 = 256 << 10;
const TOO_FEW: &str = "less than 262144 bytes are too few for staging";

/// Number of copies from which the cost of each can be observed.
const MIN_COPIES: u64 = 64;
/// Number of copies that the driver always queues while the copy engine executes the first.
const MAX_QUEUED: u64 = 512;
/// A shorter wait can't be distinguished from other delays of a host.
const MIN_WAIT: f64 = 100e-6;

const PATHS: [TransferPath; 5] = [
    TransferPath::CudaCopy,
    TransferPath::CudaBatch,
    TransferPath::Cuda2d,
    TransferPath::CudaKernel,
    TransferPath::CudaStaged,
];

/// The paths of one transfer, compared.
pub struct Comparison<'a> {
    pub(super) sides: &'a CudaSides,
    pub(super) plan: &'a Plan,
    pub(super) preferences: &'a Preferences,
    device: &'a Arc<DeviceState>,
    pub(super) case: CopyCase,
    /// The resources of the copies.
    pub limits: PathLimits,
    costs: Costs,
    division: std::result::Result<Division, Reason>,
    pub candidates: Vec<Candidate>,
    /// There was no memory to prepare one of them.
    lacks_memory: bool,
}

impl<'a> Comparison<'a> {
    /// Compares all paths.
    pub fn new(
        sides: &'a CudaSides,
        plan: &'a Plan,
        preferences: &'a Preferences,
        device: &'a Arc<DeviceState>,
    ) -> Result<Self> {
        let computes = !preferences.compute_is_idle;
        let multiprocessors = device.context().device().multiprocessors();
        let move_size = plan.bytes() / plan.max_moves().max(1);
        let costs = known::costs(device, sides.peer, sides.direction);
        let limits = PathLimits::new(sides.direction, preferences, multiprocessors, move_size, &costs.rates);
        let mut comparison = Self {
            sides,
            plan,
            preferences,
            device,
            case: CopyCase {
                direction: sides.direction,
                bytes: plan.bytes(),
                moves: plan.max_moves(),
                access: KernelAccess::from_plan(plan),
                is_pageable: sides.is_pageable,
                computes,
                busy: if computes { costs.busy } else { 0.0 },
                ctas: limits.ctas,
                row_calls: 0,
                staged: None,
            },
            limits,
            costs,
            division: Err("neither side is host memory".into()),
            candidates: Vec::with_capacity(PATHS.len()),
            lacks_memory: false,
        };
        for path in PATHS {
            if path == TransferPath::CudaStaged {
                comparison.divide()?;
            }
            let reason = comparison.reason_against(path);
            let seconds = cost::seconds(path, &comparison.case, &comparison.costs.rates);
            comparison.candidates.push(Candidate::new(path, seconds).impossible_if(reason));
        }
        let rates = comparison.costs.rates;
        comparison.compare_rows(&rates);
        Ok(comparison)
    }

    /// How busy compute keeps the device, if the estimates depend on it.
    pub fn busy(&self) -> Option<f64> {
        (self.case.computes && cost::host_is_a_side(self.case.direction)).then_some(self.case.busy)
    }

    /// The observer of runs on this path, if their durations show a cost.
    pub fn observer(&self, path: TransferPath) -> Option<CostObserver> {
        let observed = self.costs.observed.clone()?;
        let measurement = match path {
            TransferPath::CudaBatch => self.batch_measurement(),
            TransferPath::CudaKernel | TransferPath::CudaStaged if self.case.computes => {
                let expected @ [alone, beside] = cost::alone_and_beside(path, &self.case, &self.costs.rates);
                (beside - alone > alone.max(MIN_WAIT)).then_some(Measurement::Kernel { expected })
            }
            _ => None,
        };
        measurement.map(|measurement| CostObserver::new(observed, measurement))
    }

    /// What a batch shows. With few copies, the duration is mostly that of the first call. With more copies than the
    /// driver queues, it takes the later ones only when the copy engine has executed earlier ones: these must be small, or
    /// the duration is that of their bytes.
    fn batch_measurement(&self) -> Option<Measurement> {
        let (copies, measured) = (self.case.moves, self.costs.measured_batch?);
        let bytes =
            self.case.bytes as f64 / copies as f64 / self.costs.rates.in_direction(self.sides.direction).link;
        let shows = copies >= MIN_COPIES && (copies <= MAX_QUEUED || bytes < measured);
        let calls = cost::calls_of(&self.case, &self.costs.rates);
        let assumed = cost::submitting(copies, measured);
        shows.then_some(Measurement::Batch { direction: self.sides.direction, calls, assumed })
    }

    /// Divides the transfer into chunks for staging, or stores why it can't be staged. Fails if a path that the caller
    /// requested has no memory for that.
    fn divide(&mut self) -> Result<()> {
        if self.sides.host().is_none() {
            return Ok(());
        }
        let is_requested = self.preferences.path == Some(TransferPath::CudaStaged);
        if self.plan.bytes() < MIN_STAGED && !is_requested {
            self.division = Err(TOO_FEW.into());
            return Ok(());
        }
        if !is_requested && cost::min_staged(&self.case, &self.costs.rates) > self.min_seconds() {
            // Avoids sorting the blocks by host address, which is the slowest step of comparing a few dozen.
            self.division = Err("its launches alone take longer than another path".into());
            return Ok(());
        }
        self.division = match self.limits.divide(self.sides, self.plan) {
            Err(error) if is_requested && error.status() == Status::OutOfMemory => return Err(error),
            other => other.map_err(|error| error.message().to_string().into()),
        };
        if let Ok(division) = &self.division {
            self.case.staged = Some(Staged {
                chunk: division.part_size.min(self.plan.bytes()),
                parts: division.parts as u64,
                copies: division.copies,
                are_batched: self.device.context().driver().copies_batches(),
                more_launches: division.launches - division.chunks,
                is_quick: is_quick(
                    division.chunks as usize,
                    division.launches as usize,
                    division.copies as usize,
                ),
            });
        }
        Ok(())
    }

    /// Duration of the fastest possible path so far. Leaves out rows, whose calls are not counted yet.
    pub(super) fn min_seconds(&self) -> f64 {
        let others =
            self.candidates.iter().filter(|each| each.path != TransferPath::Cuda2d && each.reason.is_none());
        others.map(|each| each.seconds).fold(f64::INFINITY, f64::min)
    }

    /// Why a path is not possible, or excluded.
    fn reason_against(&self, path: TransferPath) -> Option<Reason> {
        let own = match path {
            TransferPath::CudaBatch if !self.device.context().driver().copies_batches() => {
                Some("the driver has no cuMemcpyBatchAsync".into())
            }
            TransferPath::CudaBatch if self.sides.is_pageable => {
                Some("the host memory is not page-locked".into())
            }
            TransferPath::CudaKernel => self.sides.kernel_reaches.clone().err(),
            TransferPath::CudaStaged => {
                let pageable =
                    "the host memory is not page-locked, so that the copy engine would wait for the CPU";
                match self.sides.is_pageable {
                    true => Some(pageable.into()),
                    false => self.division.as_ref().err().cloned(),
                }
            }
            _ => None,
        };
        own.or_else(|| self.excluded_by_flags(path))
    }

    /// Why the caller's flags exclude a path.
    fn excluded_by_flags(&self, path: TransferPath) -> Option<Reason> {
        let bounces = path != TransferPath::CudaKernel && self.sides.driver_bounces();
        if bounces && (self.preferences.no_host_bounce || self.preferences.zero_copy) {
            return Some("the driver copies through its own host memory, which the flags exclude".into());
        }
        (path == TransferPath::CudaStaged && self.preferences.zero_copy)
            .then(|| "the bytes pass through staging memory, which the flags exclude".into())
    }

    /// Prepares the best path. If that fails, stores the reason and prepares the next best.
    pub fn prepare_best(&mut self) -> Result<(TransferPath, CopyTask)> {
        if let Some(forced) = self.preferences.path {
            return self.prepare_forced(forced);
        }
        loop {
            let Some(best) = self.best() else { return Err(self.no_path()) };
            match self.prepare(best) {
                Ok(task) => {
                    self.explain_faster(best);
                    return Ok((best, task));
                }
                Err(error) => self.exclude(best, &error)?,
            }
        }
    }

    fn prepare_forced(&self, path: TransferPath) -> Result<(TransferPath, CopyTask)> {
        let candidate = self.candidates.iter().find(|candidate| candidate.path == path);
        let Some(candidate) = candidate else {
            return Err(Error::new(Status::Unsupported, format!("{path} is not a path for GPU memory")));
        };
        match &candidate.reason {
            Some(reason) => {
                Err(Error::new(Status::Unsupported, format!("the requested path is not possible: {reason}")))
            }
            None => self.prepare(path).map(|task| (path, task)),
        }
    }

    fn best(&self) -> Option<TransferPath> {
        cost::best(&self.candidates, &self.case, &self.costs.rates)
    }

    /// Stores why a path could not be prepared. Fails if the driver failed: that says nothing about this path.
    #[cold]
    fn exclude(&mut self, path: TransferPath, error: &Error) -> Result<()> {
        self.sides.locks.check()?;
        let failed = self.candidates.iter_mut().filter(|candidate| candidate.path == path);
        failed.for_each(|candidate| candidate.exclude(error));
        self.lacks_memory |= error.status() == Status::OutOfMemory;
        Ok(())
    }

    /// Says why a path that is estimated to be faster is not taken.
    fn explain_faster(&mut self, best: TransferPath) {
        let taken = self.candidates.iter().find(|candidate| candidate.path == best);
        let seconds = taken.map_or(0.0, |taken| taken.seconds);
        let faster =
            self.candidates.iter_mut().filter(|each| each.reason.is_none() && each.seconds < seconds);
        faster
            .for_each(|each| each.reason = Some("its calls would take the submitting thread longer".into()));
    }

    #[cold]
    fn no_path(&self) -> Error {
        let reasons: Vec<_> =
            self.candidates.iter().filter_map(|candidate| candidate.reason.clone()).collect();
        let first = reasons.first().cloned().unwrap_or_default();
        let status = if self.lacks_memory { Status::OutOfMemory } else { Status::Unsupported };
        Error::new(status, format!("no path is possible between these layouts: {first}"))
    }

    /// Prepares this path, whatever its duration.
    fn prepare(&self, path: TransferPath) -> Result<CopyTask> {
        match (path, &self.division) {
            (TransferPath::CudaStaged, Ok(division)) => {
                self.limits.prepare_staged(self.sides, self.device, self.plan, division)
            }
            _ => self.limits.prepare(self.sides, self.device, self.plan, path),
        }
    }

    /// The path that a graph takes instead of `taken`, if it is better there, and its estimated duration. A path that the
    /// caller has requested is not replaced. Its kernels, for all that a graph moves, are loaded now: loading them during the capture
    /// would invalidate the capture. If that fails, stores the reason and takes the next best.
    pub fn in_graphs(&mut self, taken: TransferPath, all: &[Plan]) -> Result<Option<GraphPath>> {
        if self.preferences.path.is_some() {
            return Ok(None);
        }
        loop {
            let Some(best) = self.best_in_graphs(taken) else { return Ok(None) };
            let load = |plan| self.limits.load_kernels(self.device, plan, best.path);
            match all.iter().try_for_each(load) {
                Ok(()) => return Ok(Some(best)),
                Err(error) => self.exclude(best.path, &error)?,
            }
        }
    }

    fn best_in_graphs(&self, taken: TransferPath) -> Option<GraphPath> {
        let seconds = |path| cost::seconds_in_graph(path, &self.case, &self.costs.rates);
        let possible = self.candidates.iter().filter(|candidate| !candidate.is_impossible);
        let timed =
            possible.map(|candidate| GraphPath { path: candidate.path, seconds: seconds(candidate.path) });
        let best = timed.min_by(|one, other| one.seconds.total_cmp(&other.seconds))?;
        (best.seconds < seconds(taken)).then_some(best)
    }
}
