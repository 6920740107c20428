// SPDX-License-Identifier: Apache-2.0
//! Simulates machines, copy by copy and chunk by chunk. Each is calibrated and observed like a real one. Then the choice
//! must be right for transfers of any size.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::kernel_access::KernelAccess;
use super::model::{CopyCase, Staged, calls_of_batch, seconds, submitting};
use super::quick::is_quick;
use super::quick::{QUICK_BATCH, QUICK_CALLS};
use super::rates::measure::Times;
use super::rates::observed::ObservedCosts;
use super::rates::{Rates, Scope};
use crate::copy::gpu::bench::measurement_task::{BATCH_BLOCK, FEW_CTAS, Task};
use crate::copy::gpu::direction::CopyDirection;
use crate::copy::gpu::launch::ctas;
use crate::cuda::copy::{EngineLoad, call_sizes};
use crate::run::path::TransferPath;

const US: f64 = 1e-6;
const MULTIPROCESSORS: u32 = 132;
/// The chunk size that is selected without concurrent compute.
const CHUNK: u64 = 8 << 20;
const PARTS: usize = 8;
/// Copies in the first call of a batch.
const COLD_COPIES: u64 = 8;
const MIN_STAGED: u64 = 256 << 10;
/// CTAs of a gather.
const GATHERING: f64 = 32.0;

/// One direction of a host and its GPU.
#[derive(Clone, Copy, Debug)]
struct Machine {
    /// Bytes per second of the copy engine, of the kernel with all CTAs and with one, and within the GPU.
    link: f64,
    kernel: f64,
    cta: f64,
    gather: f64,
    /// Seconds of the CPU: from submission to the driver's call, per call, and per copy in a batch. `cold` is the factor
    /// from a copy in a loop to one in a transfer.
    submit: f64,
    call: f64,
    batched: f64,
    cold: f64,
    /// Additional seconds for each of the first copies, for each of the first 128 of a batch, and until another thread has
    /// begun to make many calls.
    cold_copy: f64,
    first_copy: f64,
    hand_over: f64,
    /// Seconds of the copy engine between two copies: of separate calls, and of a batch.
    gap: f64,
    batch_gap: f64,
    /// The same of staged copies: a part of the time of their bytes, and at most so much.
    staged_gap_share: f64,
    staged_gap: f64,
    /// Seconds until a kernel moves bytes, and per piece with all CTAs.
    kernel_start: f64,
    piece: f64,
    /// Seconds of the events around a staged copy, until another thread has begun one, and of the events and launches
    /// per chunk.
    stage: f64,
    wake: f64,
    chunk: f64,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    piece: u64,
    pieces: u64,
    /// Number of copies between staging memory and host.
    copies: u64,
}

impl Transfer {
    fn bytes(&self) -> u64 {
        self.piece * self.pieces
    }
}

impl Machine {
    fn one_by_one(&self, count: u64, size: u64) -> f64 {
        let woken = if count > QUICK_CALLS as u64 { self.hand_over } else { 0.0 };
        let (mut host, mut engine) = (self.submit + woken, 0.0f64);
        for copy in 0..count {
            host += self.call + if copy < COLD_COPIES { self.cold_copy } else { 0.0 };
            engine = engine.max(host) + self.gap + size as f64 / self.link;
        }
        // No copy follows the last one, so its gap delays nothing.
        engine - self.gap
    }

    /// Seconds in all, and of the submission.
    fn batch(&self, count: u64, size: u64, each: f64) -> (f64, f64) {
        let woken = if count > QUICK_BATCH as u64 { self.hand_over } else { 0.0 };
        let start = self.submit + woken;
        let (mut host, mut engine) = (start + count.min(COLD_COPIES) as f64 * self.cold_copy, 0.0f64);
        let mut first = 128;
        for copies in call_sizes(count as usize, EngineLoad::Idle) {
            let of_first = copies.min(first);
            first -= of_first;
            host += self.call + copies as f64 * each + of_first as f64 * self.first_copy;
            engine = engine.max(host) + copies as f64 * (self.batch_gap + size as f64 / self.link);
        }
        (engine.max(host), host - start)
    }

    fn kernel(&self, bytes: f64, pieces: f64, ctas: u32) -> f64 {
        let rate = self.kernel.min(f64::from(ctas) * self.cta);
        self.submit + self.kernel_start + pieces * self.piece + bytes / rate
    }

    /// Seconds of a staged copy to the host: the kernel fills the parts, and the copy engine drains them.
    fn staged(&self, transfer: &Transfer) -> f64 {
        let chunks = transfer.bytes().div_ceil(CHUNK);
        let copies = transfer.copies.max(chunks).div_ceil(chunks);
        let quick = is_quick(chunks as usize, chunks as usize, transfer.copies as usize);
        let mut host = self.submit + self.stage + if quick { 0.0 } else { self.wake };
        let (mut gathered, mut engine) = (0.0f64, 0.0f64);
        let mut drained = [0.0f64; PARTS];
        for chunk in 0..chunks {
            let bytes = CHUNK.min(transfer.bytes() - chunk * CHUNK) as f64;
            host += self.chunk;
            let part = &mut drained[chunk as usize % PARTS];
            let pieces = bytes / transfer.piece as f64;
            let gather = self.kernel_start + pieces * self.piece + bytes / self.gather;
            gathered = gathered.max(host).max(*part) + gather;
            host += copies as f64 * self.batched;
            engine = engine.max(gathered).max(host - copies as f64 * self.batched) + self.gap;
            let copying = bytes / self.link;
            let each = (self.staged_gap_share * copying / copies as f64).min(self.staged_gap);
            engine = (engine + copying + copies as f64 * each.max(self.batch_gap)).max(host);
            *part = engine;
        }
        engine
    }

    fn seconds(&self, path: TransferPath, transfer: &Transfer) -> f64 {
        let Transfer { piece, pieces, .. } = *transfer;
        match path {
            TransferPath::CudaBatch => self.batch(pieces, piece, self.batched).0,
            TransferPath::CudaKernel => {
                let ctas = ctas(CopyDirection::ToHost, false, MULTIPROCESSORS, piece);
                self.kernel(transfer.bytes() as f64, pieces as f64, ctas)
            }
            TransferPath::CudaStaged => self.staged(transfer),
            _ => self.one_by_one(pieces, piece),
        }
    }

    /// The duration that a calibration measures, in tight loops and by the GPU's clock.
    fn task(&self, task: Task, amount: u64) -> f64 {
        let tight = self.batched / self.cold;
        let warm = Self { cold_copy: 0.0, first_copy: 0.0, hand_over: 0.0, ..*self };
        if let Task::Copy(CopyDirection::OnDevice)
        | Task::Kernel(CopyDirection::OnDevice)
        | Task::FewCtas(CopyDirection::OnDevice) = task
        {
            // The kernel gathers with as many CTAs as staged copies have.
            let share = if let Task::FewCtas(_) = task { f64::from(FEW_CTAS) / GATHERING } else { 1.0 };
            return self.kernel_start + amount as f64 / (share * self.gather);
        }
        match task {
            Task::Copy(_) | Task::Pageable => self.gap + amount as f64 / self.link,
            Task::Copies => warm.one_by_one(amount, 512),
            Task::Batch(_) => warm.batch(amount, BATCH_BLOCK, tight).0,
            Task::Kernel(_) => self.kernel(amount as f64, 0.0, MULTIPROCESSORS) - self.submit,
            Task::FewCtas(_) => self.kernel(amount as f64, 0.0, FEW_CTAS) - self.submit,
        }
    }

    /// The rates that kvmem has for it after some transfers.
    fn rates(&self) -> Rates {
        let mut rates = Rates::plausible(
            &Times::simulated(|task, amount| self.task(task, amount)).rates(),
            Scope::Device,
        );
        let (mut observed, mut now) = (ObservedCosts::default(), Instant::now());
        for count in [70, 64, 1000, 100, 200, 300, 128, 2000, 90, 500, 80, 256, 1500, 64, 700, 400].repeat(4)
        {
            now += Duration::from_secs(1);
            let submission = self.batch(count, 4096, self.batched).1 - calls_of_batch(count);
            let assumed = submitting(count, rates.to_host.batched);
            observed.add_batch(CopyDirection::ToHost, assumed, submission, now);
        }
        let [_, factor] = observed.batch_factors(now);
        rates.to_host.batched *= factor;
        rates
    }
}

const PATHS: [TransferPath; 4] =
    [TransferPath::CudaCopy, TransferPath::CudaBatch, TransferPath::CudaKernel, TransferPath::CudaStaged];

/// The duration of the chosen path relative to that of the best one, and both paths.
fn regret(machine: &Machine, rates: &Rates, transfer: &Transfer) -> (f64, TransferPath, TransferPath) {
    let bytes = transfer.bytes();
    let chunks = bytes.div_ceil(CHUNK);
    let copies = transfer.copies.max(chunks);
    let is_quick = is_quick(chunks as usize, chunks as usize, copies as usize);
    let staged = Staged {
        chunk: CHUNK.min(bytes),
        parts: PARTS as u64,
        copies,
        more_launches: 0,
        are_batched: true,
        is_quick,
    };
    let case = CopyCase {
        direction: CopyDirection::ToHost,
        bytes,
        moves: transfer.pieces,
        access: KernelAccess { moves: transfer.pieces, spans: [transfer.pieces, copies], transposed: 0 },
        is_pageable: false,
        computes: false,
        busy: 0.0,
        ctas: ctas(CopyDirection::ToHost, false, MULTIPROCESSORS, transfer.piece),
        row_calls: 0,
        staged: (bytes >= MIN_STAGED).then_some(staged),
    };
    let possible =
        PATHS.into_iter().filter(|path| *path != TransferPath::CudaStaged || case.staged.is_some());
    let least = |by: &dyn Fn(TransferPath) -> f64| {
        possible.clone().min_by(|a, b| by(*a).total_cmp(&by(*b))).unwrap_or(TransferPath::CudaCopy)
    };
    let chosen = least(&|path| seconds(path, &case, rates));
    let best = least(&|path| machine.seconds(path, transfer));
    (machine.seconds(chosen, transfer) / machine.seconds(best, transfer), chosen, best)
}

/// Hosts with PCIe 3 to 5, and with slow and fast CPUs.
fn any_machine() -> impl Strategy<Value = Machine> {
    let rates = (12e9..60e9f64, 0.6..0.97f64, 0.2..0.8f64, 300e9..900e9f64);
    let cpu = (5.0..7.0f64, 0.2..0.6f64, 0.25..1.6f64, 1.0..2.5f64);
    let cold = (0.2..0.7f64, 14.0..26.0f64, 0.0..0.4f64);
    let engine = (2.0..4.0f64, 0.05..0.08f64, 0.10..0.18f64, 0.3..0.45f64);
    let kernel = (6.0..14.0f64, 0.001..0.003f64);
    let chunks = (5.0..9.0f64, 25.0..45.0f64, 1.0..2.5f64);
    (rates, cpu, cold, engine, kernel, chunks).prop_map(|(rates, cpu, cold, engine, kernel, chunks)| {
        Machine {
            link: rates.0,
            kernel: rates.0 * rates.1,
            cta: rates.0 * rates.1 * rates.2,
            gather: rates.3,
            submit: cpu.0 * US,
            call: cpu.1 * US,
            batched: cpu.2 * US,
            cold: cpu.3,
            cold_copy: cold.0 * US,
            hand_over: cold.1 * US,
            first_copy: cold.2 * cpu.2 * US,
            gap: engine.0 * US,
            batch_gap: engine.1 * US,
            staged_gap_share: engine.2,
            staged_gap: engine.3 * US,
            kernel_start: kernel.0 * US,
            piece: kernel.1 * US,
            stage: chunks.0 * US,
            wake: chunks.1 * US,
            chunk: chunks.2 * US,
        }
    })
}

/// One to 65,536 pieces of 512 bytes to 8 MiB, at most 160 MiB. On the host they are scattered, in runs of 8, or
/// contiguous.
fn any_transfer() -> impl Strategy<Value = Transfer> {
    (9.0..23.0f64, 0.0..16.0f64, 0usize..3).prop_map(|(size, count, host)| {
        let piece = (size.exp2() as u64).next_multiple_of(16);
        let pieces = (count.exp2() as u64).min((160 << 20) / piece).max(1);
        let copies = [pieces, pieces.div_ceil(8), 1][host];
        Transfer { piece, pieces, copies }
    })
}

/// For transfers of any size on any machine, the chosen path takes at most a tenth longer than the best. One in 800
/// may take up to a quarter longer, because several constants that are not measured may be wrong in the same direction.
#[test]
fn on_any_machine_the_choice_is_within_a_tenth_of_the_best() {
    const MACHINES: usize = 300;
    const TRANSFERS: usize = 100;
    let mut runner = TestRunner::deterministic();
    let mut draw_machine = || any_machine().new_tree(&mut runner).map(|tree| tree.current());
    let machines: Vec<_> = (0..MACHINES).map(|_| draw_machine().unwrap()).collect();
    let mut draw_transfer = || any_transfer().new_tree(&mut runner).map(|tree| tree.current());
    let (mut others, mut worst) = (0, (1.0, String::new()));
    for machine in machines {
        let rates = machine.rates();
        for transfer in (0..TRANSFERS).map(|_| draw_transfer().unwrap()) {
            let (regret, chosen, best) = regret(&machine, &rates, &transfer);
            others += usize::from(regret > 1.1);
            if regret > worst.0 {
                worst = (regret, format!("{chosen}, not {best}, for {transfer:?} on {machine:?}"));
            }
        }
    }
    assert!(worst.0 <= 1.25, "{}: {}", worst.0, worst.1);
    assert!(others * 800 <= MACHINES * TRANSFERS, "{others} of {} points", MACHINES * TRANSFERS);
}

/// On a host whose CPU has become slow, the initial measurement alone selects the wrong path.
#[test]
fn the_choice_follows_the_observed_cost_of_batches() {
    let fast = Machine {
        link: 56e9,
        kernel: 50e9,
        cta: 30e9,
        gather: 500e9,
        submit: 6.0 * US,
        call: 0.4 * US,
        batched: 0.45 * US,
        cold: 1.5,
        cold_copy: 0.4 * US,
        first_copy: 0.1 * US,
        hand_over: 20.0 * US,
        gap: 2.8 * US,
        batch_gap: 0.06 * US,
        staged_gap_share: 0.14,
        staged_gap: 0.38 * US,
        kernel_start: 8.0 * US,
        piece: 0.003 * US,
        stage: 7.0 * US,
        wake: 35.0 * US,
        chunk: 1.6 * US,
    };
    let slow = Machine { batched: 1.2 * US, ..fast };
    let transfer = Transfer { piece: 60_000, pieces: 1000, copies: 1000 };
    let measured = fast.rates();
    assert_eq!(regret(&fast, &measured, &transfer).1, TransferPath::CudaBatch);
    assert_eq!(
        regret(&slow, &measured, &transfer).1,
        TransferPath::CudaBatch,
        "nothing has observed the change"
    );
    let (regret, chosen, _) = regret(&slow, &slow.rates(), &transfer);
    assert_eq!((chosen, regret), (TransferPath::CudaKernel, 1.0));
}
