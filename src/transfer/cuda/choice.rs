// SPDX-License-Identifier: Apache-2.0
//! Which way a copy goes: an estimate of the time that each way takes, from sizes, counts, direction, and whether
//! compute runs beside. Pure.
//!
//! Each way costs something once, something a call or move, and the bytes at its rate; no bound alone decides. The
//! constants are measured on one H200 with PCIe 5 x16; other devices differ in rates more than in which way wins.

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
    /// From one device to another.
    BetweenDevices,
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
    /// Chunks that it is staged in, bytes of one, and copies to or from the host.
    pub staged: Option<(u64, u64, u64)>,
}

/// Bytes a second, and seconds.
const LINK: f64 = 55.5e9;
const PAGEABLE: f64 = 9e9;
const DEVICE: f64 = 2065e9;
const PEER: f64 = 370e9;
const US: f64 = 1e-6;
/// What every run costs once, from its submission to the first byte.
const START: f64 = 6.0 * US;
/// One stretch of the kernel, with all CTAs at work.
const KERNEL_MOVE: f64 = 0.003 * US;
/// What a kernel waits beside compute until it gets onto the device.
const TURN: f64 = 1000.0 * US;

/// Seconds that a way takes.
pub fn seconds(path: Path, case: &Case) -> f64 {
    let (bytes, moves) = (case.bytes as f64, case.moves as f64);
    let rate = match case.direction {
        _ if case.is_pageable => PAGEABLE,
        Direction::OnDevice => DEVICE,
        Direction::BetweenDevices => PEER,
        Direction::ToDevice | Direction::ToHost => LINK,
    };
    let a_move = bytes / moves.max(1.0);
    match path {
        Path::CudaBatch => START + moves * batched(case.direction, a_move) + bytes / rate,
        Path::Cuda2d => START + case.row_calls as f64 * 3.0 * US + moves * 0.05 * US + bytes / (0.98 * rate),
        Path::CudaKernel => START + 2.0 * US + moves * KERNEL_MOVE + bytes / kernel_rate(case),
        Path::CudaStaged => staged(case),
        _ => START + moves * 2.8 * US + bytes / rate,
    }
}

/// One copy of a batch.
fn batched(direction: Direction, size: f64) -> f64 {
    match direction {
        Direction::ToDevice if size < 32e3 => 2.2 * US,
        Direction::ToDevice | Direction::ToHost => 0.33 * US,
        Direction::OnDevice | Direction::BetweenDevices => 3.1 * US,
    }
}

/// By CTAs: few don't fill the link.
fn kernel_rate(case: &Case) -> f64 {
    let ctas = f64::from(case.ctas);
    let (most, each, busy): (f64, f64, f64) = match case.direction {
        Direction::ToDevice => (51.3e9, 6.1e9, 4.0e9),
        Direction::ToHost => (52.5e9, 13.1e9, 5.9e9),
        Direction::OnDevice => (1750e9, 25e9, 15e9),
        Direction::BetweenDevices => (370e9, 5.7e9, 4e9),
    };
    most.min(ctas * if case.computes { busy } else { each })
}

fn staged(case: &Case) -> f64 {
    let Some((chunks, chunk, copies)) = case.staged else { return f64::INFINITY };
    let (bytes, chunks) = (case.bytes as f64, chunks as f64);
    let link = bytes / (0.985 * LINK) + copies as f64 * 0.35 * US;
    // The copy engine waits for the first chunk, or the kernel for the last; beside compute for every one.
    let first = chunk as f64 / 1500e9;
    let turns = if case.computes { chunks * TURN } else { 0.0 };
    START + 12.0 * US + first + chunks * 4.0 * US + turns + link
}

/// CTAs that are worth having where the caller does not cap them.
pub fn ctas(direction: Direction, computes: bool, multiprocessors: u32) -> u32 {
    match (direction, computes) {
        (Direction::OnDevice, false) => 2 * multiprocessors,
        (Direction::OnDevice, true) => multiprocessors.div_ceil(4),
        (_, false) => multiprocessors.div_ceil(2),
        (Direction::ToDevice, true) => 12,
        (_, true) => MOST_UNNOTICED,
    }
}

/// CTAs that write to the host beside compute and cost it nothing: more of them cost it most of its speed.
pub const MOST_UNNOTICED: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn case(direction: Direction, block: u64, count: u64, computes: bool) -> Case {
        Case {
            direction,
            bytes: block * count,
            moves: count,
            is_pageable: false,
            computes,
            ctas: ctas(direction, computes, 132),
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
        assert_eq!(best(&case(Direction::OnDevice, 256 << 10, 1000, false), &DIRECT), Path::CudaKernel);
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
        let alone = |computes, chunk| Case {
            staged: Some(((1u64 << 30) / chunk, chunk, (1u64 << 30) / chunk)),
            ..case(Direction::ToHost, 16 << 10, 1 << 16, computes)
        };
        let ways = [Path::CudaBatch, Path::CudaKernel, Path::CudaStaged];
        assert_eq!(best(&alone(false, 32 << 20), &ways), Path::CudaStaged);
        let beside = [Path::CudaBatch, Path::CudaStaged];
        assert_eq!(best(&alone(true, 128 << 20), &beside), Path::CudaStaged);
    }

    #[test]
    fn the_table_that_was_measured_is_met_within_a_third() {
        let rows: [(Path, Direction, u64, f64); 12] = [
            (Path::CudaCopy, Direction::ToDevice, 4 << 10, 1.4),
            (Path::CudaCopy, Direction::ToDevice, 64 << 10, 16.5),
            (Path::CudaCopy, Direction::ToHost, 1 << 20, 49.2),
            (Path::CudaCopy, Direction::OnDevice, 1 << 20, 271.0),
            (Path::CudaBatch, Direction::ToHost, 4 << 10, 10.5),
            (Path::CudaBatch, Direction::ToHost, 16 << 10, 26.0),
            (Path::CudaBatch, Direction::ToDevice, 64 << 10, 47.1),
            (Path::CudaBatch, Direction::ToDevice, 2 << 20, 54.9),
            (Path::CudaKernel, Direction::ToDevice, 4 << 10, 49.9),
            (Path::CudaKernel, Direction::ToHost, 16 << 10, 52.4),
            (Path::CudaKernel, Direction::OnDevice, 4 << 10, 762.0),
            (Path::CudaKernel, Direction::OnDevice, 64 << 10, 1753.0),
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
