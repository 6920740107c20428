// SPDX-License-Identifier: Apache-2.0
//! The duration of a kernel's accesses to memory, by their bytes and by the lengths of the spans that are contiguous on each
//! side. Pure.
//!
//! Three limits overlap: the bytes, the spans of the source and those of the destination. Alone, each takes a time in
//! proportion to its number. Together they take the cube root of the sum of cubes: the longest one, and up to 1.44 times as
//! long where all are equal. With squares instead, spans of 128 bytes of a host were estimated a tenth too slow.
//!
//! A span costs as much as so many bytes at the measured rate of its memory, so that the costs scale with a machine. Costs
//! and rates of transposing kernels are fitted to measurements on H200 hosts, and were compared with others
//! (`bench/notes/15-reshape.md`, "The estimate").

use super::kernel_access::KernelAccess;
use crate::copy::gpu::CopyDirection;

/// Bytes that take as long as a span: of a host or of the other GPU, whose spans were not measured. Hosts with x86-64 were, whose
/// cache lines have 64 bytes, as those of Grace have.
const LINKED_SPAN: f64 = 65.0;
/// The same of the GPU itself, read and written.
const OWN_SPANS: [f64; 2] = [53.0, 84.0];
/// The rate of copies within a GPU, relative to that of kernels that transpose.
const TRANSPOSING: f64 = 1.09;
/// The same of a CTA between host and GPU, in each direction. It has half of the bytes in flight, and waits at barriers.
const CTA_FROM_HOST: f64 = 2.56;
const CTA_TO_HOST: f64 = 3.07;

/// The rates that limit a kernel, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct KernelRates {
    pub most: f64,
    /// The sum of what each CTA reaches.
    pub ctas: f64,
    /// Of kernels within the GPU.
    pub own: f64,
}

/// Seconds of all accesses of a copy of so many bytes.
pub fn seconds(direction: CopyDirection, bytes: u64, access: &KernelAccess, rates: &KernelRates) -> f64 {
    let (bytes, transposed) = (bytes as f64, access.transposed as f64);
    let (memory, cta) = transposing(direction);
    let by_memory = (bytes + (memory - 1.0) * transposed) / rates.most;
    let by_ctas = (bytes + (cta - 1.0) * transposed) / rates.ctas;
    let moving = by_memory.max(by_ctas);
    let of_side = |side: usize| {
        let each = match is_own(direction, side) {
            true => OWN_SPANS[side] / rates.own,
            false => LINKED_SPAN * moving / bytes.max(1.0),
        };
        access.spans[side] as f64 * each
    };
    [moving, of_side(0), of_side(1)].map(|each| each.powi(3)).iter().sum::<f64>().cbrt()
}

/// How much longer transposed bytes take than others: by the memory, and by CTAs. Not measured between GPUs.
fn transposing(direction: CopyDirection) -> (f64, f64) {
    match direction {
        CopyDirection::OnDevice => (TRANSPOSING, 1.0),
        CopyDirection::ToDevice => (1.0, CTA_FROM_HOST),
        CopyDirection::ToHost => (1.0, CTA_TO_HOST),
        CopyDirection::FromPeer | CopyDirection::ToPeer => (1.0, 1.0),
    }
}

/// Whether a side is memory of the GPU that executes the kernel.
fn is_own(direction: CopyDirection, side: usize) -> bool {
    match direction {
        CopyDirection::OnDevice => true,
        CopyDirection::ToDevice | CopyDirection::FromPeer => side == 1,
        CopyDirection::ToHost | CopyDirection::ToPeer => side == 0,
    }
}

#[cfg(test)]
mod tests;
