// SPDX-License-Identifier: Apache-2.0
//! Which way a copy goes: an estimate of the time that each way takes, from sizes, counts, direction, and whether
//! compute runs beside. Pure.
//!
//! Each way costs something once, something a call or move, and the bytes at its rate; no bound alone decides. What
//! differs from machine to machine is measured there ([`Rates`]); the constants here are of one H200 with PCIe 5 x16.

use super::rates::Rates;
use crate::cuda::copy::FIRST_CALL;
use crate::transfer::Path;

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
    /// Compute may run beside.
    pub computes: bool,
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
}

const US: f64 = 1e-6;
/// What every run costs once, from its submission to the first byte.
const START: f64 = 6.0 * US;
/// What each copy of a batch's first call takes, until the end of which the copy engine has nothing.
const FIRST_COPY: f64 = 1.0 * US;
/// Staged copies take many calls, which the library's thread makes: it is woken, their first work begins late, and their
/// last when the copy engine's is over.
const HAND_OVER: f64 = 100.0 * US;
/// One stretch of the kernel, with all CTAs at work.
const KERNEL_MOVE: f64 = 0.003 * US;
/// Beside large kernels one of ours gets onto the device about once in this time.
const TURN: f64 = 1700.0 * US;
/// How long the first of ours, or the last, waits for its turn.
const WAIT: f64 = 0.35 * TURN;

/// Seconds that a way takes on a device of such rates.
pub fn seconds(path: Path, case: &Case, rates: &Rates) -> f64 {
    let (bytes, moves) = (case.bytes as f64, case.moves as f64);
    let own = rates.of(case.direction);
    let rate = if case.is_pageable { rates.pageable } else { own.link };
    match path {
        Path::CudaBatch => {
            let first = moves.min(FIRST_CALL as f64) * FIRST_COPY;
            START + first + moves * batched_copy(own.batched, bytes / moves.max(1.0) / rate)
        }
        Path::Cuda2d => START + case.row_calls as f64 * 3.0 * US + moves * 0.05 * US + bytes / (0.98 * rate),
        Path::CudaKernel => {
            START + rates.kernel_start + moves * KERNEL_MOVE + bytes / kernel_rate(case, rates)
        }
        Path::CudaStaged => staged(case, rates),
        _ => START + moves * rates.copy + bytes / rate,
    }
}

/// By CTAs: few don't fill the link, and fewer beside compute, which takes a tenth of what they get at most, too.
fn kernel_rate(case: &Case, rates: &Rates) -> f64 {
    let own = rates.of(case.direction);
    let (most, each) = match case.direction {
        _ if !case.computes => (1.0, 1.0),
        Direction::ToDevice => (0.9, 8.0 / 17.0),
        Direction::ToHost if case.moves * SMALL > case.bytes => (0.9, 9.5 / 26.0),
        Direction::ToHost => (0.9, 12.0 / 26.0),
        Direction::OnDevice | Direction::FromPeer | Direction::ToPeer => (1.0, 1.0),
    };
    (most * own.kernel).min(f64::from(case.ctas) * own.cta * each)
}

/// Seconds of one copy of a batch: what its bytes take, or what its part of the call takes, however small it is, and where
/// the two are near a little more. Within an eighth of what copies of 16 KiB to 1 MiB took in each direction.
pub fn batched_copy(least: f64, bytes: f64) -> f64 {
    (bytes.powi(3) + least.powi(3)).cbrt()
}

/// What it takes however small, of what it took.
pub fn least_of_batched_copy(taken: f64, bytes: f64) -> f64 {
    (taken.powi(3) - bytes.powi(3)).max(0.0).cbrt()
}

fn staged(case: &Case, rates: &Rates) -> f64 {
    let Some(Staged { chunk, parts, copies, are_batched }) = case.staged else { return f64::INFINITY };
    let (bytes, chunk) = (case.bytes as f64, chunk as f64);
    let own = rates.of(case.direction);
    // A chunk's batch is small, and begins when the one before is over: nothing hides what each copy takes.
    let link =
        bytes / (0.985 * own.link) + copies as f64 * if are_batched { own.batched } else { rates.copy };
    // The copy engine waits for the first chunk, or the kernel for the last. Beside compute the kernel fills or empties
    // all parts when it gets its turn, and the copy engine works on them until the next.
    let first = if case.computes { chunk / 800e9 + WAIT } else { chunk / 400e9 };
    let turns = if case.computes { bytes / (parts as f64 * chunk) * TURN } else { 0.0 };
    START + HAND_OVER + first + link.max(turns)
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
    use super::super::rates::DEFAULT;
    use super::*;

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
            staged: Some(Staged { chunk, parts: 8, copies: (1 << 30) / chunk, are_batched: true }),
            ..case(Direction::ToHost, 16 << 10, 1 << 16, computes)
        };
        let ways = [Path::CudaBatch, Path::CudaKernel, Path::CudaStaged];
        assert_eq!(best(&in_chunks(false, 8 << 20), &ways), Path::CudaStaged);
        assert_eq!(best(&in_chunks(true, 16 << 20), &ways), Path::CudaStaged);
    }

    #[test]
    fn a_millisecond_is_too_short_to_be_worth_staging_alone() {
        let of = |count: u64| Case {
            staged: Some(Staged { chunk: 2 << 20, parts: 8, copies: count >> 9, are_batched: true }),
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
            let rate = kernel_rate(&of(block), &DEFAULT) / 1e9;
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
            let staged = Some(Staged { chunk: 32 << 20, parts: 4, copies, are_batched: true });
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
        for (path, direction, block, measured) in rows {
            let asked = case(direction, block, 10_000, false);
            let rate = asked.bytes as f64 / seconds(path, &asked) / 1e9;
            assert!(
                (rate / measured).ln().abs() < 0.29,
                "{path:?} {direction:?} {block}: {rate} for {measured}"
            );
        }
    }
}
