// SPDX-License-Identifier: Apache-2.0
//! Measures what copies of a device cost, or of a device and a peer, by a few real ones between small buffers that are
//! freed afterwards.
//!
//! Everything is done with a small and a large amount, several times in turns, and the least time of each counts: what
//! else the machine does makes copies slower, never faster, and the difference of the two has no fixed costs in it. Of
//! batches the median counts, because their cost is the CPU's, which the fastest turn shows at its best. The turns make a
//! busy time hit all ways alike. It takes 10 to 20 ms, and the first time what loading the kernel takes.

#![forbid(unsafe_code)]

use super::super::choice::cost::Direction;
use super::super::device::state::DeviceState;
use super::bench::Bench;
use super::peer::PeerRates;
use super::{DirectionRates, Rates};
use crate::cuda::copy::FULL_CALL;
use crate::error::Result;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ROUNDS: usize = 5;
/// Transfers come one by one: the core that submits a batch has slept, and the driver's data is not in its caches. Hosts
/// took 1.2 to 2.5 times as long for a copy between host and device as in the tight loop here.
const COLD: f64 = 1.5;
/// Two of these are more than a device keeps in its cache.
pub const DEVICE_SIZE: u64 = 32 * MIB;
/// Size of the page-locked buffer, in bytes.
pub const HOST_SIZE: u64 = 8 * MIB;
/// Size of the pageable buffer, in bytes.
pub const PAGEABLE_SIZE: u64 = 2 * MIB;
/// So much takes an NVLink long enough to be told from what a start takes, and PCIe not too long.
pub const PEER_SIZE: u64 = 16 * MIB;
/// A block of the kernel's.
pub const BLOCK: u64 = 64 * KIB;
/// A copy of a batch: of larger ones one does not see what each takes the CPU, because their bytes take longer.
pub const BATCH_BLOCK: u64 = 2 * KIB;
/// So few that they don't fill a link: two do, towards the host.
pub const FEW_CTAS: u32 = 1;

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One copy of the driver's.
    Copy(Direction),
    /// The same from memory that is not page-locked.
    Pageable,
    /// Many tiny copies, a call each.
    Copies,
    /// Many blocks in one call.
    Batch(Direction),
    /// The kernel with as many CTAs as it gets.
    Kernel(Direction),
    /// The kernel with a few.
    FewCtas(Direction),
}

use Direction::{FromPeer, OnDevice, ToDevice, ToHost, ToPeer};

/// Of one device.
const TASKS: [Task; 14] = [
    Task::Copy(ToDevice),
    Task::Copy(ToHost),
    Task::Copy(OnDevice),
    Task::Pageable,
    Task::Copies,
    Task::Batch(ToDevice),
    Task::Batch(ToHost),
    Task::Batch(OnDevice),
    Task::Kernel(ToDevice),
    Task::Kernel(ToHost),
    Task::Kernel(OnDevice),
    Task::FewCtas(ToDevice),
    Task::FewCtas(ToHost),
    Task::FewCtas(OnDevice),
];

/// Of a device and a peer.
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
    /// A small and a large amount: bytes, or copies where those are counted.
    fn amounts(self) -> [u64; 2] {
        match self {
            Self::Copy(OnDevice) | Self::Kernel(OnDevice) => [DEVICE_SIZE / 4, DEVICE_SIZE],
            Self::Copy(FromPeer | ToPeer) | Self::Kernel(FromPeer | ToPeer) => [PEER_SIZE / 4, PEER_SIZE],
            Self::Copy(_) | Self::Kernel(_) => [HOST_SIZE / 4, HOST_SIZE],
            Self::Pageable => [PAGEABLE_SIZE / 4, PAGEABLE_SIZE],
            Self::Copies => [8, 32],
            Self::Batch(ToDevice | ToHost) => [FULL_CALL as u64, 3 * FULL_CALL as u64],
            // Each takes as long as ten between host and device.
            Self::Batch(_) => [FULL_CALL as u64 / 4, FULL_CALL as u64],
            Self::FewCtas(_) => [256 * KIB, MIB],
        }
    }

    /// What counts of the seconds that it took in each round.
    fn typical(self, rounds: &[f64]) -> f64 {
        let mut rounds = rounds.to_vec();
        rounds.sort_by(f64::total_cmp);
        let which = if matches!(self, Self::Batch(_)) { rounds.len() / 2 } else { 0 };
        rounds.get(which).copied().unwrap_or(f64::INFINITY)
    }
}

/// The seconds that each task took with its two amounts, in each round.
#[derive(Clone, Debug)]
pub struct Times(Vec<(Task, [Vec<f64>; 2])>);

impl Times {
    fn none(tasks: &[Task]) -> Self {
        Self(tasks.iter().map(|task| (*task, Default::default())).collect())
    }

    /// Those of a machine that is simulated.
    #[cfg(test)]
    pub fn simulated(seconds: impl Fn(Task, u64) -> f64) -> Self {
        Self(TASKS.map(|task| (task, task.amounts().map(|amount| vec![seconds(task, amount)]))).to_vec())
    }

    /// What counts of them; infinity where there are none.
    fn of(&self, task: Task) -> [f64; 2] {
        let Some((_, taken)) = self.0.iter().find(|(known, _)| *known == task) else {
            return [f64::INFINITY; 2];
        };
        taken.each_ref().map(|rounds| task.typical(rounds))
    }

    /// Seconds for each byte or copy more; 0 where that is not known.
    fn each(&self, task: Task) -> f64 {
        let ([few, many], [small, large]) = (task.amounts(), self.of(task));
        let each = (large - small) / (many - few) as f64;
        if each.is_finite() && each > 0.0 { each } else { 0.0 }
    }

    /// Bytes a second; 0 where that is not known.
    fn rate(&self, task: Task) -> f64 {
        let each = self.each(task);
        if each > 0.0 { 1.0 / each } else { 0.0 }
    }

    /// What they say of the device. Nothing of it is checked yet.
    pub fn rates(&self) -> Rates {
        let mut rates = Rates {
            pageable: self.rate(Task::Pageable),
            copy: self.each(Task::Copies),
            kernel_start: self.kernel_start(),
            ..Rates::default()
        };
        for (direction, into) in
            [(ToDevice, &mut rates.to_device), (ToHost, &mut rates.to_host), (OnDevice, &mut rates.on_device)]
        {
            *into = self.direction(direction);
        }
        rates
    }

    /// The same of a device and a peer.
    pub fn peer_rates(&self) -> PeerRates {
        PeerRates { read: self.direction(FromPeer), write: self.direction(ToPeer), ..PeerRates::default() }
    }

    fn direction(&self, direction: Direction) -> DirectionRates {
        DirectionRates {
            link: self.rate(Task::Copy(direction)),
            batched: self.batched(direction),
            kernel: self.rate(Task::Kernel(direction)),
            cta: self.rate(Task::FewCtas(direction)) / f64::from(FEW_CTAS),
        }
    }

    /// What a copy in a batch takes the CPU of a transfer.
    fn batched(&self, direction: Direction) -> f64 {
        cold(direction) * self.each(Task::Batch(direction))
    }

    /// What is left of a small copy by the kernel once its bytes are taken off.
    fn kernel_start(&self) -> f64 {
        let task = Task::FewCtas(ToDevice);
        self.of(task)[0] - task.amounts()[0] as f64 * self.each(task)
    }
}

/// Between devices the copy engine is the limit, not the CPU.
fn cold(direction: Direction) -> f64 {
    if matches!(direction, ToDevice | ToHost) { COLD } else { 1.0 }
}

/// Measures a device, and answers what it has got when something fails, with the failure.
pub fn measure(engine: &DeviceState) -> (Times, Result<()>) {
    repeat(&TASKS, Bench::open(engine))
}

/// The same of a device, which does the work, and a peer.
pub fn measure_peer(engine: &DeviceState, peer: i32) -> (Times, Result<()>) {
    repeat(&PEER_TASKS, Bench::open_with_peer(engine, peer))
}

fn repeat(tasks: &[Task], bench: Result<Bench<'_>>) -> (Times, Result<()>) {
    let mut times = Times::none(tasks);
    let outcome = bench.and_then(|bench| {
        let rounds = (0..ROUNDS).try_for_each(|_| round(&bench, &mut times));
        rounds.and(bench.kernel())
    });
    (times, outcome)
}

/// Each task once with each amount.
fn round(bench: &Bench<'_>, times: &mut Times) -> Result<()> {
    for (task, taken) in &mut times.0 {
        for (amount, taken) in task.amounts().into_iter().zip(taken) {
            taken.push(bench.time(*task, amount)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{DEFAULT, Source};
    use super::*;

    /// What a device of these rates would take, each time with the same fixed cost.
    fn times_of(rates: &Rates, fixed: f64) -> Times {
        let of = |direction| -> &DirectionRates { rates.of(direction) };
        let seconds = |task, amount: u64| {
            let amount = amount as f64;
            fixed
                + match task {
                    Task::Copy(direction) => amount / of(direction).link,
                    Task::Pageable => amount / rates.pageable,
                    Task::Copies => amount * rates.copy,
                    Task::Batch(way) => amount * of(way).batched / cold(way),
                    Task::Kernel(direction) => amount / of(direction).kernel,
                    Task::FewCtas(direction) => amount / (f64::from(FEW_CTAS) * of(direction).cta),
                }
        };
        let mut times = Times::none(&[&TASKS[..], &PEER_TASKS].concat());
        for (task, taken) in &mut times.0 {
            *taken = task.amounts().map(|amount| vec![seconds(*task, amount)]);
        }
        times
    }

    #[test]
    fn fixed_costs_are_in_none_of_the_rates() {
        let times = times_of(&DEFAULT, DEFAULT.kernel_start);
        let rates = Rates::plausible(&times.rates());
        let peer = PeerRates::plausible(&times.peer_rates());
        assert_eq!((rates.num_defaults, rates.source), (0, Source::Measured));
        assert_eq!((peer.num_defaults, peer.source), (0, Source::Measured));
        for (found, known) in [
            (rates.to_device, DEFAULT.to_device),
            (rates.to_host, DEFAULT.to_host),
            (rates.on_device, DEFAULT.on_device),
            (peer.read, DEFAULT.peer),
            (peer.write, DEFAULT.peer),
        ] {
            for (found, known) in [
                (found.link, known.link),
                (found.batched, known.batched),
                (found.kernel, known.kernel),
                (found.cta, known.cta),
            ] {
                assert!((found / known - 1.0).abs() < 1e-6, "{found} for {known}");
            }
        }
        assert!((rates.kernel_start / DEFAULT.kernel_start - 1.0).abs() < 1e-6);
    }

    #[test]
    fn without_a_measurement_there_are_defaults() {
        let rates = Rates::plausible(&Times::none(&TASKS).rates());
        assert_eq!(Rates { num_defaults: 0, ..rates }, DEFAULT);
        let rates = PeerRates::plausible(&Times::none(&PEER_TASKS).peer_rates());
        assert_eq!((rates.source, rates.read, rates.write), (Source::Default, DEFAULT.peer, DEFAULT.peer));
    }

    #[test]
    fn a_clock_that_stands_still_is_not_believed() {
        let still = Times(TASKS.map(|task| (task, [vec![1e-6], vec![1e-6]])).to_vec());
        assert_eq!(Rates::plausible(&still.rates()).to_device, DEFAULT.to_device);
    }
}
