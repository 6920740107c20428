// SPDX-License-Identifier: Apache-2.0
//! Measures the copy rates of a device, or of a device and a peer, by a few copies between small buffers that are freed
//! afterwards.
//!
//! Each task runs with a small and a large amount, once in each of several rounds. The difference between the two amounts
//! contains no fixed costs. The minimum over the rounds counts, because other load makes copies slower, never faster. For
//! batches the median counts: their cost is CPU time, and the fastest round is not typical of it. Rounds spread a busy
//! moment over all tasks. A measurement takes 10 to 20 ms; the first also loads the kernel.
//!
//! Both amounts that are copied within a device exceed its level 2 cache several times: 32 MiB were found there in part, and the
//! rate was 1.2 times that of a transfer. On an H200 the measurement moves 3.5 GiB for that, in less than 2 ms.

use std::sync::Arc;

use super::{DirectionRates, FROM_HOST, Rates};
use crate::base::Result;
use crate::base::sorting::sort_few_by;
use crate::copy::gpu::bench::Bench;
use crate::copy::gpu::bench::measurement_task::{
    FEW_CTAS, HOST_SIZE, PAGEABLE_SIZE, PEER_SIZE, Task, device_size,
};
use crate::copy::gpu::device::device_state::DeviceState;
use crate::copy::gpu::direction::CopyDirection;
use crate::cuda::copy::FULL_CALL;
use crate::cuda::exit::{self, Unattended};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ROUNDS: usize = 5;
/// Factor from a copy in the loop here to one in a transfer. Before a transfer the submitting core was idle, and its
/// caches do not contain the driver's data: hosts took 1.2 to 2.5 times as long per copy between host and device.
const COLD: f64 = 1.5;
use CopyDirection::{FromPeer, OnDevice, ToDevice, ToHost, ToPeer};

const TASKS: [Task; 13] = [
    Task::Copy(ToDevice),
    Task::Copy(ToHost),
    Task::Copy(OnDevice),
    Task::Pageable,
    Task::Copies,
    Task::Batch(ToHost),
    Task::Batch(OnDevice),
    Task::Kernel(ToDevice),
    Task::Kernel(ToHost),
    Task::Kernel(OnDevice),
    Task::FewCtas(ToDevice),
    Task::FewCtas(ToHost),
    Task::FewCtas(OnDevice),
];

/// The tasks for a device and a peer.
const PEER_TASKS: [Task; 8] = [
    Task::Copy(FromPeer),
    Task::Copy(ToPeer),
    Task::Batch(FromPeer),
    Task::Batch(ToPeer),
    Task::Kernel(FromPeer),
    Task::Kernel(ToPeer),
    Task::FewCtas(FromPeer),
    Task::FewCtas(ToPeer),
];

impl Task {
    /// A small and a large amount: a number of copies for `Copies` and `Batch`, otherwise bytes, of buffers of `device_size` bytes
    /// on the device.
    fn amounts(self, device_size: u64) -> [u64; 2] {
        match self {
            Self::Copy(OnDevice) | Self::Kernel(OnDevice) => [device_size / 2, device_size],
            Self::Copy(FromPeer | ToPeer) | Self::Kernel(FromPeer | ToPeer) => [PEER_SIZE / 4, PEER_SIZE],
            Self::Copy(_) | Self::Kernel(_) => [HOST_SIZE / 4, HOST_SIZE],
            Self::Pageable => [PAGEABLE_SIZE / 4, PAGEABLE_SIZE],
            Self::Copies => [8, 32],
            Self::Batch(ToHost) => [FULL_CALL as u64, 3 * FULL_CALL as u64],
            // Each copy takes as long as ten between host and device.
            Self::Batch(_) => [FULL_CALL as u64 / 4, FULL_CALL as u64],
            Self::FewCtas(_) => [256 * KIB, MIB],
        }
    }

    /// The duration that represents all rounds: the median for batches, otherwise the minimum.
    fn typical(self, rounds: &[f64]) -> f64 {
        let mut rounds = rounds.to_vec();
        sort_few_by(&mut rounds, f64::total_cmp);
        let which = if matches!(self, Self::Batch(_)) { rounds.len() / 2 } else { 0 };
        rounds.get(which).copied().unwrap_or(f64::INFINITY)
    }
}

/// Seconds per task, amount and round.
#[derive(Clone, Debug)]
pub struct Times {
    all: Vec<(Task, [Vec<f64>; 2])>,
    device_size: u64,
}

impl Times {
    fn none(tasks: &[Task]) -> Self {
        let all = tasks.iter().map(|task| (*task, Default::default())).collect();
        Self { all, device_size: device_size(0, 0) }
    }

    /// The typical time for each amount; infinity if nothing was measured.
    fn get(&self, task: Task) -> [f64; 2] {
        let Some((_, taken)) = self.all.iter().find(|(known, _)| *known == task) else {
            return [f64::INFINITY; 2];
        };
        taken.each_ref().map(|rounds| task.typical(rounds))
    }

    /// Seconds per additional byte or copy; 0 if unknown.
    fn each(&self, task: Task) -> f64 {
        let ([few, many], [small, large]) = (task.amounts(self.device_size), self.get(task));
        let each = (large - small) / (many - few) as f64;
        if each.is_finite() && each > 0.0 { each } else { 0.0 }
    }

    /// Bytes per second; 0 if unknown.
    fn rate(&self, task: Task) -> f64 {
        let each = self.each(task);
        if each > 0.0 { 1.0 / each } else { 0.0 }
    }

    /// The rates, 0 if they are unknown. They are not checked for plausibility.
    pub fn rates(&self) -> Rates {
        Rates {
            to_device: self.direction(ToDevice),
            to_host: self.direction(ToHost),
            on_device: self.direction(OnDevice),
            from_peer: self.direction(FromPeer),
            to_peer: self.direction(ToPeer),
            pageable: self.rate(Task::Pageable),
            copy: self.each(Task::Copies),
            kernel_start: self.kernel_start(),
            ..Rates::default()
        }
    }

    fn direction(&self, direction: CopyDirection) -> DirectionRates {
        DirectionRates {
            link: self.rate(Task::Copy(direction)),
            batched: self.batched(direction),
            kernel: self.rate(Task::Kernel(direction)),
            cta: self.rate(Task::FewCtas(direction)) / f64::from(FEW_CTAS),
        }
    }

    /// Seconds of CPU time per copy in a batch of a transfer. Copies from the host are not measured: the CPU writes short ones into the
    /// commands of a copy engine that happens to be idle, so that four measurements found 0.09 to 1.37 us for what took 0.86 in transfers.
    fn batched(&self, direction: CopyDirection) -> f64 {
        match direction {
            ToDevice => FROM_HOST * self.batched(ToHost),
            ToHost => COLD * self.each(Task::Batch(ToHost)),
            // The copy engine is the limit, not the CPU.
            _ => self.each(Task::Batch(direction)),
        }
    }

    /// Duration of a small copy by the kernel, without the time for its bytes.
    fn kernel_start(&self) -> f64 {
        let task = Task::FewCtas(ToDevice);
        self.get(task)[0] - task.amounts(self.device_size)[0] as f64 * self.each(task)
    }
}

/// Measures a device, or copies between a device, which executes them, and a peer. After a failure, returns it together with the
/// times measured so far.
pub fn measure(device: Arc<DeviceState>, peer: Option<i32>) -> (Times, Result<()>) {
    let work = match Unattended::begin() {
        Ok(work) => work,
        Err(error) => return (Times::none(&TASKS), Err(error)),
    };
    let measured = measure_until_exit(&device, peer, &work);
    // What is needed no longer is freed before the process exits.
    drop((device, work));
    measured
}

fn measure_until_exit(device: &DeviceState, peer: Option<i32>, work: &Unattended) -> (Times, Result<()>) {
    let (tasks, bench) = match peer {
        None => (&TASKS[..], Bench::open(device)),
        Some(peer) => (&PEER_TASKS[..], Bench::open_with_peer(device, peer)),
    };
    let mut times = Times::none(tasks);
    let outcome = bench.and_then(|bench| {
        times.device_size = bench.device_size();
        exit::precedes_the_driver();
        let rounds = (0..ROUNDS).try_for_each(|_| round(&bench, &mut times, work));
        exit::precedes_the_driver();
        rounds.and(bench.kernel())
    });
    (times, outcome)
}

/// Runs each task once with each amount.
fn round(bench: &Bench<'_>, times: &mut Times, work: &Unattended) -> Result<()> {
    for (task, taken) in &mut times.all {
        for (amount, taken) in task.amounts(times.device_size).into_iter().zip(taken) {
            work.ensure_wanted()?;
            taken.push(bench.time(*task, amount)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{DEFAULT, Scope, Source};
    use super::*;

    /// The times of a device with these rates, each with the same fixed cost.
    fn times_of(rates: &Rates, fixed: f64) -> Times {
        let of = |direction| -> &DirectionRates { rates.in_direction(direction) };
        let seconds = |task, amount: u64| {
            let amount = amount as f64;
            fixed
                + match task {
                    Task::Copy(direction) => amount / of(direction).link,
                    Task::Pageable => amount / rates.pageable,
                    Task::Copies => amount * rates.copy,
                    Task::Batch(direction) => {
                        amount * of(direction).batched / if direction == ToHost { COLD } else { 1.0 }
                    }
                    Task::Kernel(direction) => amount / of(direction).kernel,
                    Task::FewCtas(direction) => amount / (f64::from(FEW_CTAS) * of(direction).cta),
                }
        };
        let mut times = Times::none(&[&TASKS[..], &PEER_TASKS].concat());
        let device_size = times.device_size;
        for (task, taken) in &mut times.all {
            *taken = task.amounts(device_size).map(|amount| vec![seconds(*task, amount)]);
        }
        times
    }

    #[test]
    fn rates_contain_no_fixed_costs() {
        let times = times_of(&DEFAULT, DEFAULT.kernel_start);
        for scope in [Scope::Device, Scope::Pair] {
            let mut rates = Rates::plausible(&times.rates(), scope);
            assert_eq!((rates.num_defaults, rates.source), (0, Source::Measured));
            for (found, known) in rates.figures(scope).into_iter().zip({ DEFAULT }.figures(scope)) {
                assert!((*found / *known - 1.0).abs() < 1e-6, "{found} for {known}");
            }
        }
    }

    #[test]
    fn rates_that_were_not_measured_are_defaults() {
        for (tasks, scope) in [(&TASKS[..], Scope::Device), (&PEER_TASKS[..], Scope::Pair)] {
            let rates = Rates::plausible(&Times::none(tasks).rates(), scope);
            assert_eq!(Rates { num_defaults: 0, ..rates }, DEFAULT);
        }
    }

    #[test]
    fn times_of_a_stopped_clock_are_replaced_by_defaults() {
        let mut still = Times::none(&TASKS);
        still.all.iter_mut().for_each(|(_, taken)| *taken = [vec![1e-6], vec![1e-6]]);
        assert_eq!(Rates::plausible(&still.rates(), Scope::Device).to_device, DEFAULT.to_device);
    }
}
