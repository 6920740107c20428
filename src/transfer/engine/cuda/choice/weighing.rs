// SPDX-License-Identifier: Apache-2.0
//! The ways of one transfer on the scales: what each would take, why one can't be taken, and the best of the others.

use std::sync::Arc;

use super::super::device::state::DeviceState;
use super::super::rates::known;
use super::super::rates::known::Costs;
use super::super::rates::observed::BatchDirection;
use super::super::rates::observer::{Lesson, Observer};
use super::super::sides::Sides;
use super::super::work::division::{Division, HostOrder};
use super::super::work::driver::DriverCopies;
use super::super::work::kernel::KernelCopy;
use super::super::work::staged::{StagedCopy, is_quick};
use super::super::work::task::Job;
use super::cost;
use super::cost::{Case, Direction, Staged};
use crate::error::{Error, Result, Status};
use crate::transfer::engine::Candidate;
use crate::transfer::path::Path;
use crate::transfer::plan::Plan;
use crate::transfer::request::Preferences;

/// Staging memory that is not asked for otherwise: what the link takes while a large kernel keeps ours waiting.
const STAGING: u64 = 128 << 20;
/// The same where nothing computes: kernel and copy engine take turns sooner.
const STAGING_ALONE: u64 = 64 << 20;
/// Less is not worth staging: the copy engine would wait for the kernel most of the time.
const LEAST_STAGED: u64 = 256 << 10;

/// Copies of a batch that show what each costs.
const LEAST_COPIES: u64 = 64;
/// Copies that the driver surely queues while the copy engine is at the first.
const MOST_QUEUED: u64 = 512;
/// A wait of less, or of less than the copy takes, can't be told from what else happens on a host.
const LEAST_WAIT: f64 = 100e-6;

const WAYS: [Path; 5] = [Path::CudaCopy, Path::CudaBatch, Path::Cuda2d, Path::CudaKernel, Path::CudaStaged];

/// The ways of one transfer on the scales.
pub struct Weighing<'a> {
    pub(super) sides: &'a Sides,
    pub(super) plan: &'a Plan,
    pub(super) preferences: &'a Preferences,
    engine: &'a Arc<DeviceState>,
    pub(super) case: Case,
    costs: Costs,
    order: Option<HostOrder>,
    division: std::result::Result<Division, String>,
    pub candidates: Vec<Candidate>,
}

impl<'a> Weighing<'a> {
    /// Weighs all of them.
    pub fn new(
        sides: &'a Sides,
        plan: &'a Plan,
        preferences: &'a Preferences,
        engine: &'a Arc<DeviceState>,
    ) -> Result<Self> {
        let computes = !preferences.compute_is_idle;
        let multiprocessors = engine.context().device().multiprocessors();
        let move_size = plan.bytes() / plan.most_moves().max(1);
        let ctas = cost::ctas(sides.direction, computes, multiprocessors, move_size);
        let costs = known::costs(engine, sides.peer, sides.direction);
        let mut weighing = Self {
            sides,
            plan,
            preferences,
            engine,
            case: Case {
                direction: sides.direction,
                bytes: plan.bytes(),
                moves: plan.most_moves(),
                is_pageable: sides.is_pageable,
                computes,
                busy: if computes { costs.busy } else { 0.0 },
                ctas: if preferences.max_ctas > 0 { ctas.min(preferences.max_ctas) } else { ctas },
                row_calls: 0,
                staged: None,
            },
            costs,
            order: None,
            division: Err("neither side is host memory".to_string()),
            candidates: Vec::new(),
        };
        for path in WAYS {
            if path == Path::CudaStaged {
                weighing.divide();
            }
            let reason = weighing.reason_against(path);
            let seconds = cost::seconds(path, &weighing.case, &weighing.costs.rates);
            let is_impossible = reason.is_some();
            weighing.candidates.push(Candidate { path, seconds, reason, is_impossible });
        }
        let rates = weighing.costs.rates;
        weighing.weigh_rows(&rates);
        Ok(weighing)
    }

    /// What passes on what runs by this path show, where they show anything.
    pub fn observer(&self, path: Path) -> Option<Observer> {
        let observed = self.costs.observed.clone();
        let direction = match self.sides.direction {
            Direction::ToDevice => BatchDirection::ToDevice,
            Direction::ToHost => BatchDirection::ToHost,
            _ => return None,
        };
        let lesson = match path {
            Path::CudaBatch => self.batch_lesson(direction),
            Path::CudaKernel | Path::CudaStaged if self.case.computes => {
                let expected @ [alone, beside] = cost::turns(path, &self.case, &self.costs.rates);
                (beside - alone > alone.max(LEAST_WAIT)).then_some(Lesson::Kernel { expected })
            }
            _ => None,
        };
        lesson.map(|lesson| Observer::new(observed, lesson))
    }

    /// So few copies show more of the first call than of themselves. Of more than the driver takes at a time, it
    /// takes the later ones when the copy engine is done with earlier ones: those must be small, or what they take is
    /// what their bytes take.
    fn batch_lesson(&self, direction: BatchDirection) -> Option<Lesson> {
        let (copies, measured) = (self.case.moves, self.costs.measured_batch?);
        let bytes = self.case.bytes as f64 / copies as f64 / self.costs.rates.of(self.sides.direction).link;
        let shows = copies >= LEAST_COPIES && (copies <= MOST_QUEUED || bytes < measured);
        let calls = cost::calls_of_batch(copies);
        shows.then_some(Lesson::Batch { direction, copies, calls, measured })
    }

    /// Looks how it could be staged, where it could.
    fn divide(&mut self) {
        let Some(host) = self.sides.host() else { return };
        if self.plan.bytes() < LEAST_STAGED && self.preferences.path != Some(Path::CudaStaged) {
            self.division = Err(format!("less than {LEAST_STAGED} bytes are not worth staging"));
            return;
        }
        let is_asked = self.preferences.path == Some(Path::CudaStaged);
        if !is_asked && cost::least_staged(&self.case, &self.costs.rates) > self.least_unstaged() {
            // Sorting the blocks by their place on the host is most of what weighing a few dozen takes.
            self.division = Err("its launches alone take longer than another path".to_string());
            return;
        }
        let order = HostOrder::of(self.plan, self.sides.to_host());
        let wanted = match self.preferences.staging_size {
            0 if self.case.computes => STAGING,
            0 => STAGING_ALONE,
            asked => asked,
        };
        self.division =
            Division::of(host.geometry(), self.plan, &order, wanted, cost::staging_parts(self.case.computes));
        if let Ok(division) = &self.division {
            self.case.staged = Some(Staged {
                chunk: division.part_size.min(self.plan.bytes()),
                parts: division.parts as u64,
                copies: division.copies,
                are_batched: self.engine.context().driver().copies_batches(),
                is_quick: is_quick(division.chunks as usize, division.copies as usize),
            });
        }
        self.order = Some(order);
    }

    /// Seconds of the fastest path without staging and rows, whose calls are not counted yet.
    fn least_unstaged(&self) -> f64 {
        let others = self.candidates.iter().filter(|each| each.path != Path::Cuda2d && each.reason.is_none());
        others.map(|each| each.seconds).fold(f64::INFINITY, f64::min)
    }

    /// Why a way can't be taken, or must not be.
    fn reason_against(&self, path: Path) -> Option<String> {
        let own = match path {
            Path::CudaBatch if !self.engine.context().driver().copies_batches() => {
                Some("the driver has no cuMemcpyBatchAsync".to_string())
            }
            Path::CudaBatch if self.sides.is_pageable => {
                Some("the host memory is not page-locked".to_string())
            }
            Path::CudaKernel => self.sides.kernel_reaches.clone().err(),
            Path::CudaStaged => {
                let pageable =
                    "the host memory is not page-locked, so that the copy engine would wait for the CPU";
                match self.sides.is_pageable {
                    true => Some(pageable.to_string()),
                    false => self.division.clone().err(),
                }
            }
            _ => None,
        };
        own.or_else(|| self.refused(path))
    }

    /// What the caller's flags rule out.
    fn refused(&self, path: Path) -> Option<String> {
        let bounces = self.sides.bounces(path);
        if bounces && (self.preferences.no_host_bounce || self.preferences.zero_copy) {
            return Some(
                "the driver passes the bytes through host memory of its own, which is refused".to_string(),
            );
        }
        (path == Path::CudaStaged && self.preferences.zero_copy)
            .then(|| "the bytes pass through staging memory, which is refused".to_string())
    }

    /// Prepares the best way; where that fails, its reason is noted and the next best is.
    pub fn prepare_best(&mut self) -> Result<(Path, Job)> {
        if let Some(forced) = self.preferences.path {
            return self.prepare_forced(forced);
        }
        loop {
            let Some(best) = self.best() else { return Err(self.no_way()) };
            let path = self.candidates[best].path;
            match self.prepare(path) {
                Ok(job) => {
                    self.explain_faster(best);
                    return Ok((path, job));
                }
                Err(error) => {
                    // A question that the driver did not answer says nothing against this way.
                    self.sides.locks.check()?;
                    self.candidates[best].reason = Some(error.message().to_string());
                    self.candidates[best].is_impossible = true;
                }
            }
        }
    }

    fn prepare_forced(&self, path: Path) -> Result<(Path, Job)> {
        let candidate = self.candidates.iter().find(|candidate| candidate.path == path);
        let Some(candidate) = candidate else {
            return Err(Error::new(Status::Unsupported, format!("{path} is no way for GPU memory")));
        };
        match &candidate.reason {
            Some(reason) => Err(Error::new(
                Status::Unsupported,
                format!("the path that is asked for can't be taken: {reason}"),
            )),
            None => self.prepare(path).map(|job| (path, job)),
        }
    }

    fn best(&self) -> Option<usize> {
        let possible = self.candidates.iter().enumerate().filter(|(_, candidate)| candidate.reason.is_none());
        let weight = |each: &Candidate| cost::weight(each.path, each.seconds, &self.case, &self.costs.rates);
        possible.min_by(|(_, a), (_, b)| weight(a).total_cmp(&weight(b))).map(|(index, _)| index)
    }

    /// Says why a path that is estimated to be faster is not taken.
    fn explain_faster(&mut self, best: usize) {
        let seconds = self.candidates[best].seconds;
        let faster =
            self.candidates.iter_mut().filter(|each| each.reason.is_none() && each.seconds < seconds);
        faster.for_each(|each| {
            each.reason = Some("its calls would take the submitting thread longer".to_string())
        });
    }

    fn no_way(&self) -> Error {
        let reasons: Vec<_> =
            self.candidates.iter().filter_map(|candidate| candidate.reason.clone()).collect();
        let first = reasons.first().cloned().unwrap_or_default();
        Error::new(Status::Unsupported, format!("no path is left for these layouts: {first}"))
    }

    /// Prepares this way, whatever it weighs.
    pub fn prepare(&self, path: Path) -> Result<Job> {
        let unsupported = |reason| Error::new(Status::Unsupported, reason);
        let job = match path {
            Path::CudaBatch => {
                let from_host = self.sides.direction == Direction::ToDevice;
                Job::Driver(DriverCopies::batch(self.sides, self.plan, from_host))
            }
            Path::Cuda2d => Job::Driver(DriverCopies::rows(self.sides, self.plan)),
            Path::CudaKernel => {
                let copy = KernelCopy::prepare(self.plan, self.case.ctas);
                Job::Kernel(copy.map_err(unsupported)?, self.engine.kernel()?)
            }
            Path::CudaStaged => self.prepare_staged()?,
            _ => Job::Driver(DriverCopies::one_by_one(self.sides, self.plan)),
        };
        self.sides.locks.check()?;
        Ok(job)
    }

    fn prepare_staged(&self) -> Result<Job> {
        let unsupported = |reason| Error::new(Status::Unsupported, reason);
        let division = self.division.as_ref().map_err(|reason| unsupported(reason.clone()))?;
        let (Some(order), Some(host), Some(device)) = (&self.order, self.sides.host(), self.sides.device())
        else {
            return Err(unsupported("neither side is host memory".to_string()));
        };
        let wanted = cost::staging_ctas(self.case.computes);
        let ctas = match self.preferences.max_ctas {
            0 => wanted,
            most => wanted.min(most),
        };
        let copy = StagedCopy::prepare(self.sides, [host, device], self.plan, order, division, ctas);
        let copy = copy.map_err(unsupported)?;
        let kernel = self.engine.kernel()?;
        // Allocated here, so that no run has to.
        copy.provide_staging(self.engine)?;
        Ok(Job::Staged(Box::new(copy), kernel))
    }
}
