// SPDX-License-Identifier: Apache-2.0
//! Which way a copy goes: an estimate of the time that each way takes, from sizes, counts, direction, and whether
//! compute runs beside. Pure.
//!
//! Each path costs something once, something per call or copy, and the bytes at its rate; no bound alone decides. These
//! terms hold for any size: nothing here is a table of sizes. What differs from machine to machine is measured there
//! ([`Rates`]), and what changes from hour to hour is observed while transfers run ([`crate::transfer::rates::observed`]). The constants
//! are of H200 hosts with PCIe 5 x16, fitted to 300 transfers drawn at random (`bench/notes/19-regret.md`).

use super::super::rates::Rates;
use super::super::work::task::{QUICK_BATCH, QUICK_CALLS};
use crate::cuda::copy::{EngineLoad, FIRST_CALL, call_sizes};
use crate::transfer::path::Path;

/// Where bytes come from and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From host memory.
    ToDevice,
    /// To host memory.
    ToHost,
    /// Within one device.
    OnDevice,
    /// To the device that does the work, from another one.
    FromPeer,
    /// From the device that does the work, to another one.
    ToPeer,
}

/// What decides.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Where bytes come from and go.
    pub direction: Direction,
    /// How many.
    pub bytes: u64,
    /// Stretches that lie together on both sides.
    pub moves: u64,
    /// The host's side is not page-locked.
    pub is_pageable: bool,
    /// Compute may run beside: kernels get few CTAs.
    pub computes: bool,
    /// How busy compute keeps the device: 0 if a kernel starts at once, 1 if it waits as it does beside large kernels.
    pub busy: f64,
    /// CTAs of the kernel.
    pub ctas: u32,
    /// Calls it takes as rows.
    pub row_calls: u64,
    /// How it would be staged.
    pub staged: Option<Staged>,
}

/// A transfer in chunks that go through staging memory.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Chunks that the staging memory holds.
    pub parts: u64,
    /// Copies to or from the host.
    pub copies: u64,
    /// They go to the driver by batches.
    pub are_batched: bool,
    /// The caller's thread starts it: no other one has to be woken.
    pub is_quick: bool,
}

const US: f64 = 1e-6;
/// What every run costs once, from its submission to the first byte.
const START: f64 = 6.0 * US;
/// A call of a batch, beside its copies.
const CALL: f64 = 0.4 * US;
/// Each of the first copies of a run, until the driver's code and data are in the caches.
const COLD_COPY: f64 = 0.8 * US;
/// Copies in the first call of a batch: so many are cold.
const COLD_COPIES: u64 = FIRST_CALL as u64;
/// Another thread of the library's is woken to make many calls.
const WAKE: f64 = 20.0 * US;
/// A single copy needs no list.
const ONLY_COPY: f64 = 0.3 * US;
/// What the copy engine does between two copies of a batch.
const GAP: f64 = 0.06 * US;
/// One stretch of the kernel, with all CTAs at work.
const KERNEL_MOVE: f64 = 0.002 * US;
/// The same with the few CTAs that it has where compute may run, alone and beside it.
const KERNEL_MOVE_FEW: f64 = 0.008 * US;
const KERNEL_MOVE_BESIDE: f64 = 0.02 * US;
/// What six CTAs that read host memory move, of what many do.
const FEW_READERS: f64 = 0.93;
/// The two launches and the events of a staged copy of one or two chunks.
const STAGE: f64 = 26.0 * US;
/// The same of more chunks, whose calls another thread of the library's makes once it is woken.
const HAND_OVER: f64 = 45.0 * US;
/// A launch and four events per chunk, none of which the copies hide.
const CHUNK: f64 = 6.0 * US;
/// A transfer that takes longer is not short: its submission is a small part of it.
const SHORT: f64 = 60.0 * US;
/// A launch of the kernel, for the thread that makes it: 5.4 us on an H200 host.
const LAUNCH: f64 = 5.4 * US;
/// A call for rows, beside its rows.
const ROW_CALL: f64 = 3.0 * US;
/// A copy within a GPU or between two, for the thread that submits it, by itself or in a batch: 64 of them took 223 to
/// 255 us of an H200 host (row 2 of `bench/results/2026-11-21-nvidia-h200`).
const DEVICE_COPY: f64 = 3.5 * US;
/// Beside large kernels one of ours gets onto the device about once in this time.
const TURN: f64 = 1700.0 * US;
/// How long the first of ours, or the last, waits for its turn.
const WAIT: f64 = 0.35 * TURN;

/// How long a kernel beside large ones takes at least: with few bytes one CTA, which gets onto the device when any of
/// theirs ends, does all of it; with more bytes all CTAs must have got there, which is when the large kernel ends.
struct Turn {
    least: f64,
    per_byte: f64,
    most: f64,
}

const KERNEL_TURN: Turn = Turn { least: 180.0 * US, per_byte: 180e-12, most: 1600.0 * US };
/// The same of a staged copy, whose kernel has many CTAs.
const STAGED_TURN: Turn = Turn { least: 300.0 * US, per_byte: 190e-12, most: 1530.0 * US };

impl Turn {
    fn of(&self, bytes: f64) -> f64 {
        (self.least + self.per_byte * bytes).min(self.most)
    }
}

/// Seconds that a path takes on a device of such rates.
pub fn seconds(path: Path, case: &Case, rates: &Rates) -> f64 {
    let (bytes, moves) = (case.bytes as f64, case.moves as f64);
    let own = rates.of(case.direction);
    let rate = if case.is_pageable { rates.pageable } else { own.link };
    match path {
        Path::CudaBatch => batch(case.moves, bytes / moves.max(1.0) / rate, own.batched),
        Path::Cuda2d => START + case.row_calls as f64 * 3.0 * US + moves * 0.05 * US + bytes / (0.98 * rate),
        Path::CudaKernel | Path::CudaStaged => {
            let [alone, beside] = turns(path, case, rates);
            alone + case.busy * (beside - alone).max(0.0)
        }
        _ => {
            let wake = if case.moves > QUICK_CALLS as u64 { WAKE } else { 0.0 };
            let cold = (case.moves.min(COLD_COPIES) as f64 - 0.5).max(0.0) * COLD_COPY;
            let each = copy_call(case, rates);
            START + ONLY_COPY + wake + cold + (moves - 1.0).max(0.0) * each + bytes / rate
        }
    }
}

/// Seconds of one of many small copies, a call each. Within a GPU and between two, a call takes as long as in a batch.
fn copy_call(case: &Case, rates: &Rates) -> f64 {
    match host_is_a_side(case.direction) {
        true => rates.copy,
        false => rates.copy.max(rates.of(case.direction).batched),
    }
}

/// What paths are compared by. That of a short transfer counts the time of the thread that submits it, too: an engine
/// submits small transfers in every step, and the thread that does so has other work.
pub fn weight(path: Path, seconds: f64, case: &Case, rates: &Rates) -> f64 {
    let share = (1.0 - seconds / SHORT).max(0.0);
    seconds + share * calling(path, case, rates)
}

/// Seconds that the driver's calls of a path take the thread that makes them.
fn calling(path: Path, case: &Case, rates: &Rates) -> f64 {
    let moves = case.moves as f64;
    let is_host_a_side = host_is_a_side(case.direction);
    match path {
        Path::CudaKernel => LAUNCH,
        Path::CudaStaged => STAGE,
        Path::CudaBatch => {
            let batched = rates.of(case.direction).batched;
            calls_of_batch(case.moves) + moves * if is_host_a_side { batched } else { DEVICE_COPY }
        }
        Path::Cuda2d => {
            case.row_calls as f64 * ROW_CALL + moves * if is_host_a_side { COLD_COPY } else { DEVICE_COPY }
        }
        _ => {
            let cold = case.moves.min(COLD_COPIES) as f64 * COLD_COPY;
            cold + moves * if is_host_a_side { rates.copy } else { DEVICE_COPY }
        }
    }
}

/// Seconds of a batch: the CPU makes one call after the other, and the copy engine does the copies of those that have
/// ended.
fn batch(copies: u64, bytes: f64, batched: f64) -> f64 {
    let wake = if copies > QUICK_BATCH as u64 { WAKE } else { 0.0 };
    let cold = copies.min(COLD_COPIES) as f64 * COLD_COPY;
    let (mut cpu, mut engine) = (START + wake + cold, 0.0f64);
    for size in call_sizes(copies as usize, EngineLoad::Idle) {
        let size = size as f64;
        cpu += CALL + size * batched;
        engine = engine.max(cpu) + size * (GAP + bytes);
    }
    engine
}

/// Seconds that the calls of a batch take the CPU, beside what each copy costs.
pub fn calls_of_batch(copies: u64) -> f64 {
    let cold = copies.min(COLD_COPIES) as f64 * COLD_COPY;
    cold + call_sizes(copies as usize, EngineLoad::Idle).count() as f64 * CALL
}

/// Seconds that a path with a kernel takes on a device that does nothing else, and beside large kernels.
pub fn turns(path: Path, case: &Case, rates: &Rates) -> [f64; 2] {
    match path {
        Path::CudaStaged => staged(case, rates),
        _ => kernel(case, rates),
    }
}

fn kernel(case: &Case, rates: &Rates) -> [f64; 2] {
    let (bytes, moves) = (case.bytes as f64, case.moves as f64);
    let with = |each: f64, rate: f64| START + rates.kernel_start + moves * each + bytes / rate;
    let own = rates.of(case.direction);
    let readers = if case.computes && case.direction == Direction::ToDevice { FEW_READERS } else { 1.0 };
    let few = case.computes && host_is_a_side(case.direction);
    let each = if few { KERNEL_MOVE_FEW } else { KERNEL_MOVE };
    let alone = with(each, (readers * own.kernel).min(f64::from(case.ctas) * own.cta));
    if !host_is_a_side(case.direction) {
        return [alone; 2];
    }
    let turn = KERNEL_TURN.of(bytes);
    let moving = with(KERNEL_MOVE_BESIDE, kernel_rate_beside(case, rates));
    [alone, turn.max(moving + 0.15 * turn)]
}

/// By CTAs: beside compute each moves less, and all of them a tenth less than alone.
fn kernel_rate_beside(case: &Case, rates: &Rates) -> f64 {
    let own = rates.of(case.direction);
    let (most, each) = match case.direction {
        Direction::ToDevice => (0.9, 8.0 / 17.0),
        Direction::ToHost if case.moves * SMALL > case.bytes => (0.9, 9.5 / 26.0),
        Direction::ToHost => (0.9, 12.0 / 26.0),
        _ => (1.0, 1.0),
    };
    (most * own.kernel).min(f64::from(case.ctas) * own.cta * each)
}

fn host_is_a_side(direction: Direction) -> bool {
    matches!(direction, Direction::ToDevice | Direction::ToHost)
}

/// No staged copy takes less, however it is divided.
pub fn least_staged(case: &Case, rates: &Rates) -> f64 {
    START + STAGE + case.bytes as f64 / rates.of(case.direction).link
}

fn staged(case: &Case, rates: &Rates) -> [f64; 2] {
    let Some(Staged { chunk, parts, copies, are_batched, is_quick }) = case.staged else {
        return [f64::INFINITY; 2];
    };
    let (bytes, chunk) = (case.bytes as f64, chunk as f64);
    let own = rates.of(case.direction);
    let (copies, rate) = (copies as f64, 0.985 * own.link);
    let link = match are_batched {
        // The CPU submits the next chunk's copies while the copy engine is at this one's.
        true => (copies * own.batched).max(copies * GAP + bytes / rate),
        false => copies * rates.copy + bytes / rate,
    };
    let calls = if is_quick { STAGE } else { HAND_OVER + (bytes / chunk).ceil() * CHUNK };
    // The copy engine waits for the first chunk, or the kernel for the last. Beside compute the kernel fills or empties
    // all parts when it gets its turn, and the copy engine works on them until the next.
    let gather = case.moves as f64 * chunk / bytes.max(1.0) * KERNEL_MOVE + chunk / 400e9;
    let alone = START + calls + gather + link;
    let turns = bytes / (parts as f64 * chunk) * TURN;
    let beside = START + calls + chunk / 800e9 + WAIT + link.max(turns);
    [alone, beside.max(STAGED_TURN.of(bytes))]
}

/// CTAs that are worth having for moves of so many bytes where the caller does not cap them.
pub fn ctas(direction: Direction, computes: bool, multiprocessors: u32, move_size: u64) -> u32 {
    match (direction, computes) {
        (Direction::OnDevice, _) => 4 * multiprocessors,
        (_, false) => multiprocessors.div_ceil(2),
        (Direction::ToDevice, true) => 6,
        (Direction::FromPeer | Direction::ToPeer, true) => multiprocessors.div_ceil(2),
        (Direction::ToHost, true) => UNNOTICED + u32::from(move_size < SMALL),
    }
}

/// CTAs that write to the host beside compute and cost it next to nothing; one more costs it a twentieth of its speed, two
/// more an eighth, and four times as many most of it.
const UNNOTICED: u32 = 4;
/// Moves of less leave the link a quarter idle with these, which one more fills.
const SMALL: u64 = 8 << 10;

/// CTAs that gather or scatter for staged copies: more than the link takes, and no more, for they compete with the copy
/// engine for the device's memory. Beside compute three times as many: they get onto the device all at once when a large
/// kernel ends, and the next one waits until they are gone.
pub fn staging_ctas(computes: bool) -> u32 {
    if computes { 96 } else { 32 }
}

/// Parts of the staging memory. Beside compute few and large ones: each takes a launch, and each launch may have to wait
/// for a large kernel's end. With 8 parts of 16 MiB and 32 CTAs the link of an H200 stood still for every fourth kernel;
/// with these it runs at 0.90 and more.
pub fn staging_parts(computes: bool) -> u64 {
    if computes { 4 } else { MOST_PARTS }
}

/// The most parts that staging memory has.
pub const MOST_PARTS: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::engine::cuda::rates::DEFAULT;

    fn seconds(path: Path, case: &Case) -> f64 {
        super::seconds(path, case, &DEFAULT)
    }

    fn case(direction: Direction, block: u64, count: u64, computes: bool) -> Case {
        Case {
            direction,
            bytes: block * count,
            moves: count,
            is_pageable: false,
            computes,
            busy: if computes { 1.0 } else { 0.0 },
            ctas: ctas(direction, computes, 132, block),
            row_calls: count,
            staged: None,
        }
    }

    fn best(case: &Case, ways: &[Path]) -> Path {
        let by_time = |a: &&Path, b: &&Path| seconds(**a, case).total_cmp(&seconds(**b, case));
        *ways.iter().min_by(by_time).unwrap()
    }

    const DIRECT: [Path; 3] = [Path::CudaCopy, Path::CudaBatch, Path::CudaKernel];

    const HOST_OR_DEVICE: [Direction; 3] = [Direction::ToDevice, Direction::ToHost, Direction::OnDevice];

    /// The path of so many pairs of eight pieces of 2 KiB, all of which are rows of one call at best.
    fn path_of_pairs(direction: Direction, pairs: u64, computes: bool) -> (Path, Case) {
        let moves = 8 * pairs;
        let case = Case { row_calls: pairs, ..case(direction, 2 << 10, moves, computes) };
        let ways = [Path::CudaCopy, Path::CudaBatch, Path::Cuda2d, Path::CudaKernel];
        let weight = |path| weight(path, seconds(path, &case), &case, &DEFAULT);
        (*ways.iter().min_by(|a, b| weight(**a).total_cmp(&weight(**b))).unwrap(), case)
    }

    #[test]
    fn few_pairs_take_the_submitting_thread_no_longer_than_more_do() {
        for (direction, computes) in HOST_OR_DEVICE.into_iter().flat_map(|way| [(way, false), (way, true)]) {
            let calling = |pairs| {
                let (path, case) = path_of_pairs(direction, pairs, computes);
                super::calling(path, &case, &DEFAULT)
            };
            for pairs in [1, 2, 4, 16] {
                assert!(calling(pairs) <= calling(64) + 0.1 * US, "{pairs} pairs, {direction:?}, {computes}");
            }
        }
    }

    #[test]
    fn one_copy_is_the_drivers_however_short() {
        for direction in HOST_OR_DEVICE {
            let one = case(direction, 2 << 10, 1, true);
            let of = |path| weight(path, seconds(path, &one), &one, &DEFAULT);
            assert!(of(Path::CudaCopy) < of(Path::CudaKernel), "{direction:?}");
        }
    }

    #[test]
    fn alone_the_kernel_takes_small_blocks_and_the_batch_large_ones() {
        for direction in [Direction::ToDevice, Direction::ToHost] {
            assert_eq!(best(&case(direction, 4 << 10, 10_000, false), &DIRECT), Path::CudaKernel);
            assert_eq!(best(&case(direction, 16 << 10, 10_000, false), &DIRECT), Path::CudaKernel);
            assert_eq!(best(&case(direction, 2 << 20, 1000, false), &DIRECT), Path::CudaBatch);
        }
        assert_eq!(best(&case(Direction::ToDevice, 64 << 10, 10_000, false), &DIRECT), Path::CudaBatch);
        assert_eq!(best(&case(Direction::OnDevice, 256 << 10, 1000, false), &DIRECT), Path::CudaKernel);
    }

    #[test]
    fn beside_compute_few_ctas_write_small_blocks_and_the_batch_larger_ones() {
        assert_eq!(best(&case(Direction::ToHost, 4 << 10, 10_000, true), &DIRECT), Path::CudaKernel);
        assert_eq!(best(&case(Direction::ToHost, 256 << 10, 1000, true), &DIRECT), Path::CudaBatch);
        assert_eq!(best(&case(Direction::ToDevice, 16 << 10, 10_000, true), &DIRECT), Path::CudaKernel);
        assert_eq!(best(&case(Direction::ToDevice, 1 << 20, 1000, true), &DIRECT), Path::CudaBatch);
    }

    #[test]
    fn one_large_copy_is_the_drivers() {
        for direction in [Direction::ToDevice, Direction::ToHost, Direction::OnDevice] {
            let one = case(direction, 1 << 30, 1, false);
            assert!(seconds(Path::CudaCopy, &one) < seconds(Path::CudaKernel, &one));
        }
    }

    #[test]
    fn a_host_that_lies_together_is_staged_alone_and_in_large_chunks_beside_compute() {
        let in_chunks = |computes, chunk: u64| Case {
            staged: Some(Staged {
                chunk,
                parts: 8,
                copies: (1 << 30) / chunk,
                are_batched: true,
                is_quick: false,
            }),
            ..case(Direction::ToHost, 16 << 10, 1 << 16, computes)
        };
        let ways = [Path::CudaBatch, Path::CudaKernel, Path::CudaStaged];
        assert_eq!(best(&in_chunks(false, 8 << 20), &ways), Path::CudaStaged);
        assert_eq!(best(&in_chunks(true, 16 << 20), &ways), Path::CudaStaged);
    }

    #[test]
    fn a_millisecond_is_too_short_to_be_worth_staging_alone() {
        let of = |count: u64| Case {
            staged: Some(Staged {
                chunk: 8 << 20,
                parts: 8,
                copies: count >> 11,
                are_batched: true,
                is_quick: false,
            }),
            ..case(Direction::ToDevice, 4 << 10, count, false)
        };
        let ways = [Path::CudaBatch, Path::CudaKernel, Path::CudaStaged];
        assert_eq!(best(&of(10_000), &ways), Path::CudaKernel);
        assert_eq!(best(&of(1 << 16), &ways), Path::CudaStaged);
    }

    #[test]
    fn beside_compute_small_moves_to_the_host_get_one_more_cta_and_no_large_ones_do() {
        let of = |block| case(Direction::ToHost, block, 10_000, true);
        assert_eq!((of(4 << 10).ctas, of(16 << 10).ctas), (UNNOTICED + 1, UNNOTICED));
        // As an H200 moved them beside a GEMM, of 55 GB/s.
        for (block, measured) in [(4 << 10, 47.0), (16 << 10, 48.2)] {
            let rate = kernel_rate_beside(&of(block), &DEFAULT) / 1e9;
            assert!((rate / measured - 1.0).abs() < 0.1, "{rate} for {measured}");
        }
        assert_eq!(best(&of(4 << 10), &DIRECT), Path::CudaKernel);
    }

    #[test]
    fn beside_compute_staged_copies_take_what_they_took_beside_a_gemm() {
        // 320 MiB in pieces that lie together on the host, all of them or 64 at a time, through four parts of 32 MiB.
        for (direction, piece, copies, measured) in [
            (Direction::ToHost, 16 << 10, 10, 49.7),
            (Direction::ToHost, 16 << 10, 320, 49.6),
            (Direction::ToDevice, 4 << 10, 10, 49.4),
            (Direction::ToDevice, 16 << 10, 320, 49.8),
        ] {
            let staged =
                Some(Staged { chunk: 32 << 20, parts: 4, copies, are_batched: true, is_quick: false });
            let asked = Case { staged, ..case(direction, piece, (320 << 20) / piece, true) };
            let rate = asked.bytes as f64 / seconds(Path::CudaStaged, &asked) / 1e9;
            assert!((rate / measured - 1.0).abs() < 0.05, "{rate} for {measured}");
            assert_eq!(
                best(&asked, &[Path::CudaBatch, Path::CudaKernel, Path::CudaStaged]),
                Path::CudaStaged
            );
        }
    }

    #[test]
    fn the_table_that_was_measured_is_met_within_a_third() {
        let rows: [(Path, Direction, u64, f64); 13] = [
            (Path::CudaCopy, Direction::ToDevice, 4 << 10, 1.4),
            (Path::CudaCopy, Direction::ToDevice, 64 << 10, 16.5),
            (Path::CudaCopy, Direction::ToHost, 1 << 20, 49.2),
            (Path::CudaCopy, Direction::OnDevice, 1 << 20, 271.0),
            (Path::CudaBatch, Direction::ToHost, 4 << 10, 13.7),
            (Path::CudaBatch, Direction::ToHost, 16 << 10, 33.0),
            (Path::CudaBatch, Direction::ToDevice, 16 << 10, 41.0),
            (Path::CudaBatch, Direction::ToDevice, 64 << 10, 54.5),
            (Path::CudaBatch, Direction::ToDevice, 2 << 20, 54.9),
            (Path::CudaKernel, Direction::ToDevice, 4 << 10, 49.9),
            (Path::CudaKernel, Direction::ToHost, 16 << 10, 52.4),
            (Path::CudaKernel, Direction::OnDevice, 4 << 10, 762.0),
            (Path::CudaKernel, Direction::OnDevice, 64 << 10, 1503.0),
        ];
        // Of batches that followed each other at once: those of transfers take longer.
        let mut warm = DEFAULT;
        warm.to_device.batched /= 1.5;
        warm.to_host.batched /= 1.5;
        for (path, direction, block, measured) in rows {
            let asked = case(direction, block, 10_000, false);
            let rate = asked.bytes as f64 / super::seconds(path, &asked, &warm) / 1e9;
            assert!(
                (rate / measured).ln().abs() < 0.29,
                "{path:?} {direction:?} {block}: {rate} for {measured}"
            );
        }
    }
}
