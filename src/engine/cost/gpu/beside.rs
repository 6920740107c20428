// SPDX-License-Identifier: Apache-2.0
//! How kernels of kvmem wait for large kernels of the program. The durations are those of products of 8192 x 8192 matrices on
//! H200: how long a kernel waits depends on the kernels of the program, more than on the GPU. How often it does is observed
//! (`observed`). Pure.

const US: f64 = 1e-6;

/// Interval in which a kernel of kvmem starts once on a device that executes large kernels.
pub const TURN: f64 = 1700.0 * US;

/// So busy an idle device seems to be at most, because a host delays some runs as long as compute would, by any method. On H100 and H200
/// hosts it was 0.20 at most at 191 points on an idle device, and at least 0.85 at 48 points beside large kernels.
const DELAYS: f64 = 0.2;

/// How long kernels wait, from 0 to 1, on a device that seems to be so busy.
pub fn waiting(busy: f64) -> f64 {
    ((busy - DELAYS) / (1.0 - DELAYS)).max(0.0)
}

/// How kernels of kvmem get onto a device that executes large kernels, one after the other: in the gap in which the last CTAs
/// of one end and the first of the next have not begun. Of transfers that follow each other, one gap takes as many as
/// their time alone allows, then the next one waits for a large kernel. Measured beside products of 8192 x 8192 matrices.
pub struct Beside {
    /// From one gap to the next, when one transfer fits each.
    pub turn: f64,
    pub gap: f64,
}

pub const KERNEL_TO_DEVICE: Beside = Beside { turn: 1600.0 * US, gap: 110.0 * US };
/// A kernel that writes host memory need not wait until the bytes have arrived.
pub const KERNEL_TO_HOST: Beside = Beside { turn: 1600.0 * US, gap: 155.0 * US };
pub const STAGED_TO_DEVICE: Beside = Beside { turn: 1600.0 * US, gap: 120.0 * US };
pub const STAGED_TO_HOST: Beside = Beside { turn: 1530.0 * US, gap: 110.0 * US };
/// The relative variation of a gap.
const JITTER: f64 = 0.2;

impl Beside {
    /// Mean duration of transfers that take `alone` in a gap.
    pub fn mean(&self, alone: f64) -> f64 {
        let fitting = self.gap / alone;
        self.turn / (1.0 + mean_floor(fitting * (1.0 - JITTER), fitting * (1.0 + JITTER)))
    }
}

/// The mean of the integers below the numbers from `low` to `high`.
fn mean_floor(low: f64, high: f64) -> f64 {
    let sum = |to: f64| to.floor() * (to.floor() - 1.0) / 2.0 + to.floor() * (to - to.floor());
    (sum(high) - sum(low)) / (high - low)
}

/// A contiguous span that the kernel copies in a gap.
pub const KERNEL_MOVE_IN_GAP: f64 = 0.03 * US;
/// Time of a staged copy in a gap, without its bytes: the events between kernel and copy engine.
pub const STAGE_IN_GAP: f64 = 19.0 * US;

/// Transfers that take nearly as long as a large kernel miss the next gap, and wait for another large kernel.
pub struct Misses {
    /// The duration from which one of them does, and from which all do.
    from: f64,
    pub all: f64,
    cost: f64,
}

/// Of a staged copy, by the time of the copy engine and that of the kernel that does not overlap with it.
pub const STAGED_MISSES: Misses = Misses { from: 1320.0 * US, all: 1580.0 * US, cost: 1400.0 * US };
/// Of a kernel that reads host memory. One that writes it has not been seen to.
pub const KERNEL_MISSES: Misses = Misses { from: 1850.0 * US, all: 2050.0 * US, cost: 1000.0 * US };

impl Misses {
    pub fn mean(&self, duration: f64) -> f64 {
        ((duration - self.from) / (self.all - self.from)).clamp(0.0, 1.0) * self.cost
    }
}

/// Time until the last kernel of a staged copy starts, if it takes several gaps.
pub const LONG_WAIT: f64 = 0.35 * TURN;
