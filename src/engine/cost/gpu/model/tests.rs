// SPDX-License-Identifier: Apache-2.0
//! The cost model compared with measurements on H200 hosts, and the methods that it selects.

use super::recorded_points::h100;
use super::*;
use crate::copy::gpu::launch::ctas;
use crate::copy::gpu::rates::DEFAULT;

fn seconds(method: TransferMethod, case: &CopyCase) -> f64 {
    super::seconds(method, case, &DEFAULT)
}

fn case(direction: CopyDirection, block: u64, count: u64, computes: bool) -> CopyCase {
    CopyCase {
        direction,
        bytes: block * count,
        moves: count,
        access: KernelAccess { moves: count, spans: [count; 2], transposed: 0 },
        is_pageable: false,
        computes,
        busy: if computes { 1.0 } else { 0.0 },
        ctas: ctas(direction, computes, 132, block),
        row_calls: count,
        staged: None,
    }
}

const DIRECT: [TransferMethod; 3] =
    [TransferMethod::CudaCopy, TransferMethod::CudaBatch, TransferMethod::CudaKernel];

const HOST_OR_DEVICE: [CopyDirection; 3] =
    [CopyDirection::ToDevice, CopyDirection::ToHost, CopyDirection::OnDevice];

/// The method of `pairs` pairs, each of eight pieces of 2 KiB, which one call copies as rows.
fn method_of_pairs(direction: CopyDirection, pairs: u64, computes: bool) -> (TransferMethod, CopyCase) {
    let moves = 8 * pairs;
    let case = CopyCase { row_calls: pairs, ..case(direction, 2 << 10, moves, computes) };
    let methods = [
        TransferMethod::CudaCopy,
        TransferMethod::CudaBatch,
        TransferMethod::Cuda2d,
        TransferMethod::CudaKernel,
    ];
    let estimates = methods.map(|method| Candidate::new(method, seconds(method, &case)));
    (super::best(&estimates, &case, &DEFAULT).unwrap(), case)
}

#[test]
fn submitting_few_pairs_takes_no_longer_than_submitting_more() {
    let both = |direction| [(direction, false), (direction, true)];
    for (direction, computes) in HOST_OR_DEVICE.into_iter().flat_map(both) {
        let submission = |pairs| {
            let (method, case) = method_of_pairs(direction, pairs, computes);
            super::submission(method, &case, &DEFAULT)
        };
        for pairs in [1, 2, 4, 16] {
            let (few, many) = (submission(pairs), submission(64));
            assert!(few <= many + 0.1 * US, "{pairs} pairs, {direction:?}, {computes}");
        }
    }
}

#[test]
fn the_driver_makes_a_single_short_copy() {
    for direction in HOST_OR_DEVICE {
        let one = case(direction, 2 << 10, 1, true);
        let ways = [TransferMethod::CudaBatch, TransferMethod::CudaKernel, TransferMethod::CudaCopy];
        let methods = ways.map(|method| Candidate::new(method, seconds(method, &one)));
        let best = super::best(&methods, &one, &DEFAULT);
        assert_eq!(best, Some(TransferMethod::CudaCopy), "{direction:?}");
    }
}

#[test]
fn short_calls_are_worth_a_twentieth_of_the_duration_and_no_more() {
    let few = case(CopyDirection::ToDevice, 18 << 10, 6, true);
    let chosen = |kernel| {
        let methods = [(TransferMethod::CudaBatch, 18.7 * US), (TransferMethod::CudaKernel, kernel)]
            .map(|(method, seconds)| Candidate::new(method, seconds));
        super::best(&methods, &few, &DEFAULT)
    };
    assert_eq!(chosen(20.5 * US), Some(TransferMethod::CudaKernel));
    assert_eq!(chosen(21.0 * US), Some(TransferMethod::CudaBatch));
}

#[test]
fn beside_compute_the_estimate_of_staged_copies_is_within_a_twentieth_of_the_measurement() {
    // 320 MiB in pieces that are contiguous on the host, all of them or 64 at a time, through four parts of 32 MiB.
    for (direction, piece, copies, measured) in [
        (CopyDirection::ToHost, 16 << 10, 10, 49.7),
        (CopyDirection::ToHost, 16 << 10, 320, 49.6),
        (CopyDirection::ToDevice, 4 << 10, 10, 49.4),
        (CopyDirection::ToDevice, 16 << 10, 320, 49.8),
    ] {
        let staged = Staged {
            chunk: 32 << 20,
            parts: 4,
            copies,
            more_launches: 0,
            are_batched: true,
            is_quick: false,
        };
        let staged = Some(staged);
        let case = CopyCase { staged, ..case(direction, piece, (320 << 20) / piece, true) };
        let rate = case.bytes as f64 / seconds(TransferMethod::CudaStaged, &case) / 1e9;
        assert!((rate / measured - 1.0).abs() < 0.05, "{rate} for {measured}");
    }
}

#[test]
fn estimates_are_within_a_third_of_the_measured_table() {
    let rows: [(TransferMethod, CopyDirection, u64, f64); 13] = [
        (TransferMethod::CudaCopy, CopyDirection::ToDevice, 4 << 10, 1.4),
        (TransferMethod::CudaCopy, CopyDirection::ToDevice, 64 << 10, 16.5),
        (TransferMethod::CudaCopy, CopyDirection::ToHost, 1 << 20, 49.2),
        (TransferMethod::CudaCopy, CopyDirection::OnDevice, 1 << 20, 271.0),
        (TransferMethod::CudaBatch, CopyDirection::ToHost, 4 << 10, 13.7),
        (TransferMethod::CudaBatch, CopyDirection::ToHost, 16 << 10, 33.0),
        (TransferMethod::CudaBatch, CopyDirection::ToDevice, 16 << 10, 41.0),
        (TransferMethod::CudaBatch, CopyDirection::ToDevice, 64 << 10, 54.5),
        (TransferMethod::CudaBatch, CopyDirection::ToDevice, 2 << 20, 54.9),
        (TransferMethod::CudaKernel, CopyDirection::ToDevice, 4 << 10, 49.9),
        (TransferMethod::CudaKernel, CopyDirection::ToHost, 16 << 10, 52.4),
        (TransferMethod::CudaKernel, CopyDirection::OnDevice, 4 << 10, 762.0),
        (TransferMethod::CudaKernel, CopyDirection::OnDevice, 64 << 10, 1503.0),
    ];
    // The batches of the table followed each other at once, so their caches were warm.
    let mut warm = DEFAULT;
    warm.to_device.batched /= 1.5;
    warm.to_host.batched /= 1.5;
    for (method, direction, block, measured) in rows {
        let case = case(direction, block, 10_000, false);
        let rate = case.bytes as f64 / super::seconds(method, &case, &warm) / 1e9;
        assert!(
            (rate / measured).ln().abs() < 0.29,
            "{method:?} {direction:?} {block}: {rate} for {measured}"
        );
    }
}

#[test]
fn within_a_gpu_many_spans_are_copied_at_the_measured_rate() {
    for (block, measured) in [(4 << 10, 1449.0), (16 << 10, 1789.8), (64 << 10, 1877.1)] {
        let case = case(CopyDirection::OnDevice, block, 1 << 16, false);
        let rate = case.bytes as f64 / seconds(TransferMethod::CudaKernel, &case) / 1e9;
        assert!((rate / measured - 1.0).abs() < 0.1, "{rate} for {measured}");
    }
}

/// Measured on five H200 hosts, in microseconds.
#[test]
fn beside_compute_estimates_of_kernels_are_within_a_third_of_the_measurement() {
    let to_device = [
        (1344, 1485, 824.0),
        (976, 2823, 1477.0),
        (2112, 1257, 831.0),
        (552_944, 1, 333.0),
        (653_984, 2, 549.0),
        (2_772_816, 1, 807.0),
        (10_304, 1978, 1615.0),
        (2448, 34_097, 3065.0),
        (164_672, 38, 1604.0),
    ];
    let to_host = [
        (5824, 465, 816.0),
        (768, 612, 490.0),
        (7600, 228, 494.0),
        (35_392, 45, 472.0),
        (3072, 2890, 1602.0),
    ];
    let points = [(CopyDirection::ToDevice, &to_device[..]), (CopyDirection::ToHost, &to_host[..])];
    for (direction, (block, count, measured)) in
        points.iter().flat_map(|(at, all)| all.iter().map(|each| (*at, *each)))
    {
        let estimate = seconds(TransferMethod::CudaKernel, &case(direction, block, count, true)) / US;
        assert!((estimate / measured - 1.0f64).abs() < 0.33, "{block} x {count}: {estimate} for {measured}");
    }
}

/// Measured on an H100 whose CPU takes 0.8 to 0.85 us for each copy of a batch, in microseconds (`bench/notes/19-regret.md`). `copies` are those between staging memory and host.
#[test]
fn estimates_of_few_pieces_and_of_scattered_host_memory_are_near_the_measurement() {
    use CopyDirection::{ToDevice, ToHost};
    use TransferMethod::{CudaBatch, CudaKernel, CudaStaged};
    const KIB: u64 = 1 << 10;
    let points = [
        // Few pieces: durations of the same method differ by a fifth.
        (CudaBatch, ToDevice, 18 * KIB, 4, 0, false, 21.3, 0.25),
        (CudaBatch, ToDevice, 18 * KIB, 8, 0, false, 42.4, 0.25),
        (CudaBatch, ToDevice, 24 * KIB, 4, 0, false, 30.1, 0.25),
        (CudaBatch, ToDevice, 24 * KIB, 8, 0, false, 48.7, 0.25),
        (CudaBatch, ToDevice, 64 * KIB, 4, 0, false, 19.0, 0.25),
        (CudaBatch, ToHost, 18 * KIB, 4, 0, false, 14.2, 0.25),
        (CudaBatch, ToHost, 24 * KIB, 8, 0, false, 21.3, 0.25),
        (CudaKernel, ToDevice, 18 * KIB, 4, 0, false, 19.6, 0.25),
        // Blocks that are scattered on the host. Half of them are adjacent to the one before, in host order.
        (CudaStaged, ToHost, 32 * KIB, 16_000, 8000, false, 11_272.0, 0.05),
        (CudaStaged, ToHost, 48 * KIB, 2000, 1000, false, 2122.6, 0.05),
        (CudaStaged, ToHost, 96 * KIB, 2000, 1000, false, 4009.4, 0.05),
        (CudaStaged, ToHost, 24 * KIB, 2000, 1000, false, 1102.3, 0.05),
        (CudaStaged, ToHost, 32 * KIB, 16_000, 1000, false, 10_076.0, 0.05),
        (CudaStaged, ToHost, 32 * KIB, 16_000, 62, false, 9732.0, 0.05),
        (CudaStaged, ToDevice, 48 * KIB, 2000, 1000, false, 1912.1, 0.05),
        (CudaStaged, ToDevice, 18 * KIB, 16_000, 8000, false, 7052.2, 0.07),
        (CudaStaged, ToDevice, 32 * KIB, 16_000, 62, false, 9839.0, 0.05),
        // The few CTAs that a kernel has by default.
        (CudaKernel, ToDevice, 2 * KIB, 32_000, 0, true, 1866.0, 0.05),
        (CudaKernel, ToHost, 2 * KIB, 32_000, 0, true, 1295.0, 0.05),
    ];
    for (method, direction, block, count, copies, computes, measured, most) in points {
        let staged =
            Staged { chunk: 8 << 20, parts: 8, copies, more_launches: 0, are_batched: true, is_quick: false };
        let point = CopyCase {
            staged: (copies > 0).then_some(staged),
            busy: 0.0,
            ..case(direction, block, count, computes)
        };
        let estimate = super::seconds_at_one_speed(method, &point, &h100(0.82 * US)) / US;
        assert!(
            (estimate / measured - 1.0f64).abs() < most,
            "{method} {direction:?} {count} x {block}: {estimate} for {measured}"
        );
    }
}

/// Few small pieces from the host: by a kernel, also if a delay of the host looks like compute. The driver would write them into its
/// commands.
#[test]
fn a_kernel_copies_four_short_pieces_from_the_host() {
    for block in [18 << 10, 24 << 10] {
        for rates in [DEFAULT, h100(0.82 * US)] {
            for busy in [0.0, 0.06, 0.2] {
                let four = CopyCase { busy, ..case(CopyDirection::ToDevice, block, 4, false) };
                let methods =
                    DIRECT.map(|method| Candidate::new(method, super::seconds(method, &four, &rates)));
                let best = super::best(&methods, &four, &rates);
                assert_eq!(best, Some(TransferMethod::CudaKernel), "{busy} {methods:?}");
            }
        }
    }
}
