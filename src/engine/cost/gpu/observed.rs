// SPDX-License-Identifier: Apache-2.0
//! Costs that runs on a GPU show, so that estimates follow a host that changes: the CPU time of batches, and the time that
//! kernels wait for concurrent compute. A run costs two clock reads and one lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::model::{CopyCase, calls_of, submission_of_staged, submitting};
use crate::base::Mutex;
use crate::copy::gpu::CopyDirection;
use crate::copy::gpu::rates::Rates;
use crate::run::TransferMethod;
use crate::run::learned::{Learned, Learning};

/// Number of copies from which the cost of each can be observed.
const MIN_COPIES: u64 = 64;
/// Number of copies that the driver always queues while the copy engine executes the first.
const MAX_QUEUED: u64 = 512;

/// The CPU time of a batch or a staged copy, relative to what is assumed. Runs count by the time since the previous one, so that
/// the estimate is a mean over seconds: on H200 hosts, a copy takes 0.4 us or twice that, for some tenths of a second each.
/// Following each change made worse choices than the mean, because the next transfer meets the other state as often.
static BATCH: Learning = Learning {
    default: 1.0,
    bounds: [0.3, 3.0],
    prior: 4.0,
    memory: 4.0,
    longer: 1.0,
    spacings: [Duration::from_secs(1); 2],
    half_life: Some(Duration::from_secs(300)),
};
/// How busy compute keeps the device. The default is low, so that kernels are tried: only kernels can show it. It rises
/// fast and falls slowly: a kernel that did not wait may have started in a gap between two large kernels. The half-life
/// covers the time in which every transfer is too small for a kernel beside compute, so that none shows it. Samples above 1
/// count: where kernels wait for all of a large one or not at all, and twice the mean is as frequent as nothing, a limit of 1
/// would halve the mean. A lower sample counts by the time since the previous one, up to the length of a large kernel: while
/// a large kernel ends, ten transfers that follow each other directly may start at once, and that is still one gap.
static BUSY: Learning = Learning {
    default: 0.02,
    bounds: [0.0, 2.0],
    prior: 9.0,
    memory: 9.0,
    longer: 4.0,
    spacings: [Duration::ZERO, Duration::from_micros(1700)],
    half_life: Some(Duration::from_secs(30)),
};

#[derive(Clone, Copy, Debug)]
pub struct ObservedCosts {
    to_device: Learned<1>,
    to_host: Learned<1>,
    busy: Learned<1>,
}

impl Default for ObservedCosts {
    fn default() -> Self {
        let [to_device, to_host] = [Learned::new(&BATCH); 2];
        Self { to_device, to_host, busy: Learned::new(&BUSY) }
    }
}

impl ObservedCosts {
    /// The CPU time of batches to the device and to the host, relative to what is assumed.
    pub fn batch_factors(&self, now: Instant) -> [f64; 2] {
        let ([to_device], [to_host]) = (self.to_device.factors(now), self.to_host.factors(now));
        [to_device, to_host]
    }

    /// How busy compute keeps the device: 0 if kernels start at once, 1 if they wait as they do for large kernels.
    pub fn busy(&self, now: Instant) -> f64 {
        let [busy] = self.busy.factors(now);
        busy.min(1.0)
    }

    /// Adds a batch whose copies took `taken` seconds of CPU time, and are assumed to take `assumed`.
    pub fn add_batch(&mut self, direction: CopyDirection, assumed: f64, taken: f64, now: Instant) {
        let batches =
            if direction == CopyDirection::ToHost { &mut self.to_host } else { &mut self.to_device };
        batches.add([assumed], taken, 1.0, now);
    }

    /// Adds a run of a method with a kernel, which took `taken` seconds. `alone` and `beside` are the estimates without and with
    /// concurrent large kernels. A duration that is nearer to the first counts as the first: the rest is delay of the host.
    pub fn add_kernel(&mut self, taken: f64, [alone, beside]: [f64; 2], now: Instant) {
        let waited = (taken - alone) / (beside - alone);
        self.busy.add([1.0], if waited > 0.5 { waited } else { 0.0 }, 1.0, now);
    }
}

/// The CPU time of a transfer's copies in batches.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    pub direction: CopyDirection,
    /// Seconds of its calls, without the time per copy.
    pub calls: f64,
    /// Seconds of its copies, as assumed.
    pub assumed: f64,
}

impl Submission {
    /// What the submission of a run by this method shows, if it does. `measured` is the measured CPU time per copy. With few copies, the
    /// duration is mostly that of the first call. With more copies than the driver queues, it takes the later ones only when the copy
    /// engine has executed earlier ones: these must be small, or the duration is that of their bytes, and must not wait for kernels
    /// that may wait for compute.
    pub fn shown(method: TransferMethod, case: &CopyCase, rates: &Rates, measured: f64) -> Option<Self> {
        let (copies, [calls, assumed], may_wait) = match (method, &case.staged) {
            (TransferMethod::CudaBatch, _) => {
                (case.moves, [calls_of(case, case.moves, rates), submitting(case.moves, measured)], false)
            }
            (TransferMethod::CudaStaged, Some(staged)) if staged.are_batched => {
                (staged.copies, submission_of_staged(case, staged, measured, rates), case.computes)
            }
            _ => return None,
        };
        let bytes = case.bytes as f64 / copies as f64 / rates.in_direction(case.direction).link;
        let are_queued = copies <= MAX_QUEUED || bytes < measured && !may_wait;
        (copies >= MIN_COPIES && are_queued).then_some(Self { direction: case.direction, calls, assumed })
    }
}

/// Adds what a transfer's runs show to the observed costs of its device.
pub struct CostObserver {
    pub observed: Arc<Mutex<ObservedCosts>>,
    /// How long it takes to submit them, if that shows the CPU's time.
    pub submission: Option<Submission>,
    /// Estimated seconds of a run, without and with concurrent large kernels, if it shows how long kernels wait.
    pub expected: Option<[f64; 2]>,
}

impl CostObserver {
    /// Records the duration of a successful submission.
    pub fn submitted(&self, took: Duration) {
        if let Some(Submission { direction, calls, assumed }) = self.submission {
            let taken = (took.as_secs_f64() - calls).max(0.0);
            self.observed.lock().add_batch(direction, assumed, taken, Instant::now());
        }
    }

    /// Records the duration of a successful run during which no other run was in flight.
    pub fn ended_alone(&self, took: Duration) {
        if let Some(expected) = self.expected {
            self.observed.lock().add_kernel(took.as_secs_f64(), expected, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernel_access::KernelAccess;
    use super::super::model::Staged;
    use super::*;
    use crate::copy::gpu::rates::DEFAULT;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn each_direction_has_its_own_estimate() {
        let (mut observed, now) = (ObservedCosts::default(), Instant::now());
        observed.add_batch(CopyDirection::ToHost, 1e-6, 2e-6, now);
        let [to_device, to_host] = observed.batch_factors(now);
        assert!(to_device == 1.0 && to_host > 1.1, "{to_host}");
    }

    #[test]
    fn a_few_delayed_kernels_show_compute_and_kernels_are_tried_again_later() {
        let (mut observed, start) = (ObservedCosts::default(), Instant::now());
        let expected = [20e-6, 200e-6];
        observed.add_kernel(210e-6, expected, start);
        assert!(observed.busy(start) < 0.4, "one delayed kernel proves little");
        observed.add_kernel(190e-6, expected, start);
        observed.add_kernel(190e-6, expected, start);
        observed.add_kernel(90e-6, expected, start);
        assert!(observed.busy(start) > 0.5, "the last kernel was late, but did not wait for compute");
        assert!(observed.busy(start + 180 * SECOND) < 0.05);
        observed.add_kernel(19e-6, expected, start + SECOND);
        assert!(observed.busy(start + SECOND) > 0.4, "a gap between two kernels");
        for run in 1..=20 {
            observed.add_kernel(19e-6, expected, start + SECOND + run * SECOND / 100);
        }
        assert!(observed.busy(start + 2 * SECOND) < 0.1);
    }

    #[test]
    fn a_staged_run_shows_the_speed_of_the_cpu_and_whether_compute_runs() {
        let observed = Arc::new(Mutex::new(ObservedCosts::default()));
        let submission =
            Some(Submission { direction: CopyDirection::ToDevice, calls: 20e-6, assumed: 100e-6 });
        let observer =
            CostObserver { observed: observed.clone(), submission, expected: Some([200e-6, 1600e-6]) };
        observer.submitted(Duration::from_micros(220));
        observer.ended_alone(Duration::from_micros(1700));
        let (seen, now) = (*observed.lock(), Instant::now());
        let [to_device, to_host] = seen.batch_factors(now);
        assert!(to_device > 1.1 && to_host == 1.0, "{to_device} {to_host}");
        assert!(seen.busy(now) > 0.1, "{}", seen.busy(now));
    }

    #[test]
    fn only_submissions_that_wait_for_nothing_show_the_speed_of_the_cpu() {
        use TransferMethod::{CudaBatch, CudaKernel, CudaStaged};
        let shown = |method, copies: u64, size, computes| {
            let staged = Staged {
                chunk: 8 << 20,
                parts: 8,
                copies,
                more_launches: 0,
                are_batched: true,
                is_quick: false,
            };
            let case = CopyCase {
                direction: CopyDirection::ToDevice,
                bytes: copies * size,
                moves: copies,
                access: KernelAccess { moves: copies, spans: [copies; 2], transposed: 0 },
                is_pageable: false,
                computes,
                busy: 0.0,
                ctas: 6,
                row_calls: 0,
                staged: Some(staged),
            };
            Submission::shown(method, &case, &DEFAULT, 0.7e-6)
        };
        let assumed = |method, copies, size, computes| {
            shown(method, copies, size, computes).map_or(0.0, |shown| shown.assumed)
        };
        assert!(assumed(CudaStaged, 400, 64 << 10, true) > assumed(CudaBatch, 400, 64 << 10, true));
        assert!(assumed(CudaBatch, 400, 64 << 10, true) > 400.0 * 0.7e-6);
        assert!(assumed(CudaStaged, 4000, 16 << 10, false) > 4000.0 * 0.7e-6);
        for (method, copies, size, computes) in [
            (CudaBatch, 32, 16 << 10, false),
            (CudaStaged, 32, 16 << 10, false),
            (CudaBatch, 4000, 64 << 10, false),
            (CudaStaged, 4000, 64 << 10, false),
            (CudaStaged, 4000, 16 << 10, true),
            (CudaKernel, 400, 16 << 10, false),
        ] {
            assert!(shown(method, copies, size, computes).is_none(), "{method} {copies} x {size}");
        }
    }

    /// Transfers that follow each other directly.
    struct Series {
        observed: ObservedCosts,
        now: Instant,
        expected: [f64; 2],
    }

    impl Series {
        fn new(expected: [f64; 2]) -> Self {
            Self { observed: ObservedCosts::default(), now: Instant::now(), expected }
        }

        fn run(&mut self, taken: f64) {
            self.now += Duration::from_secs_f64(taken);
            self.observed.add_kernel(taken, self.expected, self.now);
        }

        fn run_for(&mut self, duration: Duration, taken: f64) {
            let end = self.now + duration;
            while self.now < end {
                self.run(taken);
            }
        }

        fn busy(&self) -> f64 {
            self.observed.busy(self.now)
        }
    }

    #[test]
    fn kernels_that_wait_for_twice_the_mean_or_not_at_all_show_that_compute_runs() {
        let mut series = Series::new([70e-6, 800e-6]);
        for run in 0..40 {
            series.run(if run % 2 == 0 { 1530e-6 } else { 75e-6 });
        }
        for _ in 0..4 {
            series.run(75e-6);
        }
        assert!(series.busy() > 0.85, "{}", series.busy());
    }

    /// While the last CTAs of a large kernel end, other multiprocessors are free. Then short kernels start at once, several of
    /// them.
    #[test]
    fn short_kernels_in_the_gaps_between_large_ones_do_not_show_that_compute_has_ended() {
        let mut series = Series::new([16e-6, 210e-6]);
        for large in 0..160 {
            series.run_for(Duration::from_micros(1350), 270e-6);
            series.run_for(Duration::from_micros(150), 16e-6);
            assert!(large < 2 || series.busy() > 0.9, "{large}: {}", series.busy());
        }
        series.run_for(Duration::from_millis(60), 16e-6);
        assert!(series.busy() < 0.1, "compute has ended: {}", series.busy());
    }
}
