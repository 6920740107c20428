// SPDX-License-Identifier: Apache-2.0
//! Estimates of the kernel, compared with measurements that no constant was fitted to.

use super::super::model as cost;
use super::super::model::CopyCase;
use super::*;
use crate::copy::gpu::launch::ctas;
use crate::copy::gpu::rates::DEFAULT;
use crate::run::TransferMethod;
use CopyDirection::{OnDevice, ToDevice, ToHost};

/// Direction, bytes of the contiguous spans on each side, whether compute may run, and GB/s.
type Point = (CopyDirection, [u64; 2], bool, f64);

/// The transposing kernel with accesses of 16 bytes, by the GPU's clock, for elements of 2 and 8 bytes.
const ALONE: [Point; 20] = [
    (OnDevice, [131072, 131072], false, 1563.0),
    (OnDevice, [32, 32768], false, 883.8),
    (ToDevice, [128, 131072], false, 50.3),
    (ToHost, [131072, 128], false, 49.8),
    (OnDevice, [131072, 128], false, 1494.0),
    (OnDevice, [32768, 32768], false, 1666.4),
    (OnDevice, [32768, 32768], false, 1658.8),
    (OnDevice, [128, 131072], false, 1493.7),
    (OnDevice, [131072, 131072], false, 1514.5),
    (ToDevice, [32, 32768], false, 22.5),
    (OnDevice, [131072, 131072], false, 1534.1),
    (OnDevice, [128, 32768], false, 1590.6),
    (ToDevice, [512, 131072], false, 50.3),
    (ToHost, [131072, 512], false, 51.6),
    (OnDevice, [131072, 512], false, 1525.5),
    (OnDevice, [32768, 32768], false, 1653.9),
    (OnDevice, [32768, 32768], false, 1699.5),
    (OnDevice, [512, 131072], false, 1577.4),
    (OnDevice, [131072, 131072], false, 1581.0),
    (ToDevice, [128, 32768], false, 50.6),
];

/// Transfers of row 15 on another H200 with the kernel before it: those with a host, and elements of 8 bytes within the GPU,
/// which both kernels copy at the same rate.
const RECORDED: [Point; 19] = [
    (OnDevice, [32768, 32768], false, 1824.4),
    (OnDevice, [32768, 32768], false, 1753.9),
    (OnDevice, [131072, 131072], false, 1506.0),
    (OnDevice, [131072, 131072], false, 1568.4),
    (OnDevice, [131072, 512], false, 1517.4),
    (OnDevice, [512, 131072], false, 1563.7),
    (OnDevice, [128, 32768], false, 1696.2),
    (ToDevice, [128, 131072], true, 39.4),
    (ToDevice, [128, 131072], false, 49.5),
    (ToDevice, [32, 32768], true, 17.5),
    (ToDevice, [32, 32768], false, 20.6),
    (ToHost, [131072, 128], true, 28.0),
    (ToHost, [131072, 128], false, 46.8),
    (ToDevice, [64, 131072], true, 31.5),
    (ToDevice, [64, 131072], false, 40.2),
    (ToDevice, [16, 32768], true, 10.3),
    (ToDevice, [16, 32768], false, 10.5),
    (ToHost, [131072, 64], true, 32.5),
    (ToHost, [131072, 64], false, 43.7),
];

/// From the submission to the first byte, without the start of the kernel.
const SUBMISSION: f64 = 6e-6;

/// A copy whose elements are all transposed.
fn case(direction: CopyDirection, bytes: u64, spans: [u64; 2], computes: bool) -> CopyCase {
    let lengths = spans.map(|length| bytes / length);
    let moves = bytes.div_ceil(4096);
    CopyCase {
        direction,
        bytes,
        moves: lengths[0].max(lengths[1]),
        access: KernelAccess { moves, spans: lengths, transposed: bytes },
        is_pageable: false,
        computes,
        busy: 0.0,
        ctas: ctas(direction, computes, 132, 2),
        row_calls: 0,
        staged: None,
    }
}

fn kernel(case: &CopyCase) -> f64 {
    cost::seconds(TransferMethod::CudaKernel, case, &DEFAULT)
}

/// The relative errors, the smallest first. `host` and `device` are the bytes that were copied.
fn errors(points: &[Point], [host, device]: [u64; 2], submission: f64) -> Vec<f64> {
    let error = |(direction, spans, computes, measured): &Point| {
        let bytes = if *direction == OnDevice { device } else { host };
        let case = case(*direction, bytes, *spans, *computes);
        let rate = bytes as f64 / (kernel(&case) - submission) / 1e9;
        (rate / measured).ln().abs().exp() - 1.0
    };
    let mut errors: Vec<f64> = points.iter().map(error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

#[test]
fn estimates_of_transposing_kernels_are_within_a_seventh_of_points_that_were_not_fitted() {
    let errors = errors(&ALONE, [64 << 20, 256 << 20], SUBMISSION);
    println!("alone: median {:.3}, worst {:.3}", errors[errors.len() / 2], errors[errors.len() - 1]);
    assert!(errors[errors.len() / 2] < 0.06 && errors[errors.len() - 1] < 0.14, "{errors:?}");
}

/// All but one point, which was 37.7 GB/s on another host: the default number of CTAs, to the host, 2 bytes.
#[test]
fn estimates_of_transposing_transfers_are_within_a_quarter_of_the_record_of_another_host() {
    let errors = errors(&RECORDED, [256 << 20, 1 << 30], 0.0);
    println!("recorded: median {:.3}, worst {:?}", errors[errors.len() / 2], &errors[errors.len() - 2..]);
    assert!(errors[errors.len() / 2] < 0.1, "{errors:?}");
    assert!(errors[errors.len() - 2] < 0.25 && errors[errors.len() - 1] < 0.4, "{errors:?}");
}
