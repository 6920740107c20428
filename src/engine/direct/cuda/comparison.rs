// SPDX-License-Identifier: Apache-2.0
//! Compares the methods of one transfer: the estimated duration of each, the reason if one is not possible, and
//! the best of the others.

use std::sync::Arc;

use super::graphs::GraphMethod;
use super::work::copy_task::CopyTask;
use super::work::method_limits::MethodLimits;
use crate::base::{Error, Result, Status, error, fail};
use crate::copy::gpu::division::Division;
use crate::copy::gpu::{CudaSides, DeviceState};
use crate::cuda::{Patience, quiet};
use crate::engine::cost::gpu::kernel_access::KernelAccess;
use crate::engine::cost::gpu::known::{self, Costs};
use crate::engine::cost::gpu::model as cost;
use crate::engine::cost::gpu::model::{CopyCase, Staged, is_quick};
use crate::engine::cost::gpu::observed::{CostObserver, Submission};
use crate::engine::cost::outcome::{Against, Candidate};
use crate::engine::preferences::Preferences;
use crate::plan::Plan;
use crate::run::TransferMethod;

/// Fewer bytes are not staged: the copy engine would mostly wait for the kernel.
const MIN_STAGED: u64 = 256 << 10;
const TOO_FEW: &str = "less than 262144 bytes are too few for staging";

/// The seconds that kernels must save for a call to wait for their compilation, which takes 0.1 to 0.4 s once on a machine.
const WORTH_A_COMPILATION: f64 = 1.0;

/// A shorter wait can't be distinguished from other delays of a host.
const MIN_WAIT: f64 = 100e-6;

const METHODS: [TransferMethod; 5] = [
    TransferMethod::CudaCopy,
    TransferMethod::CudaBatch,
    TransferMethod::Cuda2d,
    TransferMethod::CudaKernel,
    TransferMethod::CudaStaged,
];

fn is_of_kernels(method: TransferMethod) -> bool {
    matches!(method, TransferMethod::CudaKernel | TransferMethod::CudaStaged)
}

/// The methods of one transfer, compared.
pub struct Comparison<'a> {
    pub(super) sides: &'a CudaSides,
    pub(super) plan: &'a Plan,
    pub(super) preferences: &'a Preferences,
    device: &'a Arc<DeviceState>,
    pub(super) case: CopyCase,
    pub limits: MethodLimits,
    costs: Costs,
    division: std::result::Result<Division, Against>,
    pub candidates: Vec<Candidate>,
    /// One of them could not be prepared for lack of memory, or because the device is busy.
    lack: Option<Status>,
    /// For kernels, while there are methods without.
    patience: Patience,
}

impl<'a> Comparison<'a> {
    pub fn new(
        sides: &'a CudaSides,
        plan: &'a Plan,
        preferences: &'a Preferences,
        device: &'a Arc<DeviceState>,
    ) -> Result<Self> {
        let computes = !preferences.compute_is_idle;
        let multiprocessors = device.context().device().multiprocessors();
        let move_size = plan.bytes() / plan.max_moves().max(1);
        let mut patience = Patience::optional();
        let costs = known::costs(device, sides.peer, sides.direction, &patience);
        patience.has_chosen();
        let limits =
            MethodLimits::new(sides.direction, preferences, multiprocessors, move_size, &costs.rates);
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
            division: Err(Against::impossible("neither side is host memory")),
            candidates: Vec::with_capacity(METHODS.len()),
            lack: None,
            patience,
        };
        for method in METHODS {
            if method == TransferMethod::CudaStaged {
                comparison.divide()?;
            }
            let against = comparison.against(method);
            let seconds = cost::seconds(method, &comparison.case, &comparison.costs.rates);
            comparison.candidates.push(Candidate::new(method, seconds).against(against));
        }
        let rates = comparison.costs.rates;
        comparison.compare_rows(&rates);
        Ok(comparison)
    }

    /// How busy compute keeps the device, if the estimates depend on it.
    pub fn busy(&self) -> Option<f64> {
        (self.case.computes && cost::host_is_a_side(self.case.direction)).then_some(self.case.busy)
    }

    /// The observer of runs by this method, if their durations show a cost.
    pub fn observer(&self, method: TransferMethod) -> Option<CostObserver> {
        let observed = self.costs.observed.clone()?;
        let (case, rates) = (&self.case, &self.costs.rates);
        let submission =
            self.costs.measured_batch.and_then(|measured| Submission::shown(method, case, rates, measured));
        let expected = (is_of_kernels(method) && case.computes)
            .then(|| cost::alone_and_beside(method, case, rates))
            .filter(|[alone, beside]| beside - alone > alone.max(MIN_WAIT));
        (submission.is_some() || expected.is_some()).then_some(CostObserver {
            observed,
            submission,
            expected,
        })
    }

    /// Divides the transfer into chunks for staging, or stores why it can't be staged. Fails if a method that the caller
    /// requested has no memory for that.
    fn divide(&mut self) -> Result<()> {
        if self.sides.host().is_none() {
            return Ok(());
        }
        let is_requested = self.preferences.method == Some(TransferMethod::CudaStaged);
        if self.plan.bytes() < MIN_STAGED && !is_requested {
            self.division = Err(Against::better(TOO_FEW));
            return Ok(());
        }
        if !is_requested && cost::min_staged(&self.case, &self.costs.rates) > self.min_seconds() {
            // Avoids sorting the blocks by host address, which is the slowest step of comparing a few dozen.
            self.division = Err(Against::better("its launches alone take longer than another method"));
            return Ok(());
        }
        self.division = match self.limits.divide(self.sides, self.plan) {
            Err(error) if is_requested && error.status() == Status::OutOfMemory => return Err(error),
            other => other.map_err(|error| Against::impossible(error.message().to_string())),
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

    /// Duration of the fastest possible method so far. Leaves out rows, whose calls are not counted yet.
    pub(super) fn min_seconds(&self) -> f64 {
        let others = self
            .candidates
            .iter()
            .filter(|each| each.method != TransferMethod::Cuda2d && each.reason.is_none());
        others.map(|each| each.seconds).fold(f64::INFINITY, f64::min)
    }

    /// Why a method is not possible, excluded, or not worth it.
    fn against(&self, method: TransferMethod) -> Option<Against> {
        let impossible = match method {
            TransferMethod::CudaBatch if !self.device.context().driver().copies_batches() => {
                Some("the driver has no cuMemcpyBatchAsync".into())
            }
            TransferMethod::CudaBatch if self.sides.is_pageable => {
                Some("the host memory is not page-locked".into())
            }
            TransferMethod::CudaKernel => self.sides.kernel_reaches.clone().err(),
            TransferMethod::CudaStaged if self.sides.is_pageable => Some(
                "the host memory is not page-locked, so that the copy engine would wait for the CPU".into(),
            ),
            _ => None,
        };
        let impossible = impossible.or_else(|| self.excluded_by_flags(method).map(Into::into));
        let undivided = || match method {
            TransferMethod::CudaStaged => self.division.as_ref().err().cloned(),
            _ => None,
        };
        impossible.map(Against::impossible).or_else(undivided)
    }

    /// Why the caller's flags exclude a method.
    fn excluded_by_flags(&self, method: TransferMethod) -> Option<&'static str> {
        let bounces = method != TransferMethod::CudaKernel && self.sides.driver_bounces();
        if bounces && (self.preferences.no_host_bounce || self.preferences.zero_copy) {
            return Some("the driver copies through its own host memory, which the flags exclude");
        }
        (method == TransferMethod::CudaStaged && self.preferences.zero_copy)
            .then_some("the bytes pass through staging memory, which the flags exclude")
    }

    /// Prepares the best method, for this plan and others, such as those of the other layers. If that fails, stores the reason and
    /// prepares the next best.
    pub fn prepare_best(&mut self, others: &[Plan]) -> Result<(TransferMethod, CopyTask, Vec<CopyTask>)> {
        if let Some(forced) = self.preferences.method {
            let (task, others) = self.prepare_forced(forced, others)?;
            return Ok((forced, task, others));
        }
        loop {
            let Some(best) = self.best() else { return Err(self.no_method()) };
            if self.lacks_rows(best) {
                continue;
            }
            let needed = self.needs_kernels().then(|| Patience::needed(quiet::PATIENCE));
            match self.prepare(best, others, needed.as_ref().unwrap_or(&self.patience)) {
                Ok((task, others)) => {
                    self.explain_faster(best);
                    return Ok((best, task, others));
                }
                Err(error) => self.exclude(best, &error)?,
            }
        }
    }

    /// Whether the call waits for kernels as one that has no other method: all others take longer by [`WORTH_A_COMPILATION`].
    fn needs_kernels(&self) -> bool {
        let fastest = |with_kernel| {
            let left = self.candidates.iter().filter(|each| each.reason.is_none());
            let alike = left.filter(|each| is_of_kernels(each.method) == with_kernel);
            alike.map(|each| each.seconds).fold(f64::INFINITY, f64::min)
        };
        fastest(false) - fastest(true) > WORTH_A_COMPILATION
    }

    fn prepare_forced(&self, method: TransferMethod, others: &[Plan]) -> Result<(CopyTask, Vec<CopyTask>)> {
        let candidate = self.candidates.iter().find(|candidate| candidate.method == method);
        let Some(candidate) = candidate else {
            fail!(Unsupported, "{method} is not a method for GPU memory");
        };
        match &candidate.reason {
            Some(reason) => Err(error!(Unsupported, "the requested method is not possible: {reason}")),
            None => self.prepare(method, others, &Patience::needed(quiet::PATIENCE)),
        }
    }

    fn best(&self) -> Option<TransferMethod> {
        cost::best(&self.candidates, &self.case, &self.costs.rates)
    }

    /// Stores why a method could not be prepared. Fails if the driver failed: that says nothing about this method.
    #[cold]
    fn exclude(&mut self, method: TransferMethod, error: &Error) -> Result<()> {
        self.sides.locks.check()?;
        let failed = self.candidates.iter_mut().filter(|candidate| candidate.method == method);
        failed.for_each(|candidate| candidate.exclude(error));
        match error.status() {
            Status::OutOfMemory => self.lack = Some(Status::OutOfMemory),
            Status::Busy => self.lack = self.lack.or(Some(Status::Busy)),
            _ => {}
        }
        Ok(())
    }

    /// Says why a method that is estimated to be faster is not taken.
    fn explain_faster(&mut self, best: TransferMethod) {
        let taken = self.candidates.iter().find(|candidate| candidate.method == best);
        let seconds = taken.map_or(0.0, |taken| taken.seconds);
        let faster =
            self.candidates.iter_mut().filter(|each| each.reason.is_none() && each.seconds < seconds);
        faster
            .for_each(|each| each.reason = Some("its calls would take the submitting thread longer".into()));
    }

    #[cold]
    fn no_method(&self) -> Error {
        let reasons: Vec<_> =
            self.candidates.iter().filter_map(|candidate| candidate.reason.clone()).collect();
        let first = reasons.first().cloned().unwrap_or_default();
        let status = self.lack.unwrap_or(Status::Unsupported);
        Error::new(status, format!("no method is possible between these layouts: {first}"))
    }

    /// Prepares this method, whatever its duration. Other plans may need other kernels, if they start at other alignments.
    fn prepare(
        &self,
        method: TransferMethod,
        others: &[Plan],
        patience: &Patience,
    ) -> Result<(CopyTask, Vec<CopyTask>)> {
        let prepare = |plan| self.limits.prepare(self.sides, self.device, plan, method, patience);
        let task = match (method, &self.division) {
            (TransferMethod::CudaStaged, Ok(division)) => {
                self.limits.prepare_staged(self.sides, self.device, self.plan, division, patience)
            }
            _ => prepare(self.plan),
        }?;
        Ok((task, others.iter().map(prepare).collect::<Result<_>>()?))
    }

    /// The method that a graph takes instead of `taken`, if it is better there, and its estimated duration. A method that the
    /// caller has requested is not replaced. Its kernels, for all that a graph moves, are loaded now: loading them during the capture
    /// would invalidate the capture. If that fails, stores the reason and takes the next best.
    pub fn in_graphs(&mut self, taken: TransferMethod, all: &[Plan]) -> Result<Option<GraphMethod>> {
        if self.preferences.method.is_some() {
            return Ok(None);
        }
        loop {
            let Some(best) = self.best_in_graphs(taken) else { return Ok(None) };
            if self.lacks_rows(best.method) {
                continue;
            }
            let load = |plan| self.limits.load_kernels(self.device, plan, best.method, &self.patience);
            match all.iter().try_for_each(load) {
                Ok(()) => return Ok(Some(best)),
                Err(error) => self.exclude(best.method, &error)?,
            }
        }
    }

    fn best_in_graphs(&self, taken: TransferMethod) -> Option<GraphMethod> {
        let seconds = |method| cost::seconds_in_graph(method, &self.case, &self.costs.rates);
        let possible = self.candidates.iter().filter(|candidate| !candidate.is_impossible);
        let timed = possible
            .map(|candidate| GraphMethod { method: candidate.method, seconds: seconds(candidate.method) });
        let best = timed.min_by(|one, other| one.seconds.total_cmp(&other.seconds))?;
        (best.seconds < seconds(taken)).then_some(best)
    }
}
