// SPDX-License-Identifier: Apache-2.0
//! The cost model: estimates the duration of a copy by each method, from sizes, counts, direction, and whether compute runs
//! concurrently. Pure.
//!
//! The duration of a method is the sum of a fixed cost, a cost per call or copy, and the bytes at its rate. This holds for
//! any size: no table of sizes is needed. Costs that differ between machines are measured ([`Rates`]), and costs that
//! change over time are observed while transfers run (`observed`). The constants are those of H200 hosts with PCIe 5
//! x16, fitted to 300 random transfers (`bench/notes/19-regret.md`).

use super::access_time::{self, KernelRates};
use super::beside::{
    KERNEL_MISSES, KERNEL_MOVE_IN_GAP, KERNEL_TO_DEVICE, KERNEL_TO_HOST, LONG_WAIT, STAGE_IN_GAP,
    STAGED_MISSES, STAGED_TO_DEVICE, STAGED_TO_HOST, TURN, waiting,
};
use super::ctas::{MAX_BESIDE, cta_share_beside};
use super::kernel_access::KernelAccess;
use crate::copy::gpu::CopyDirection;
use crate::copy::gpu::launch::staging_ctas;
use crate::copy::gpu::rates::{FROM_HOST, Rates};
use crate::cuda::copy::{EngineLoad, FIRST_CALL, FULL_CALL, equal_calls};
use crate::engine::cost::outcome::{self, Candidate, Tolerance};
use crate::run::TransferMethod;

/// The properties of a copy that its duration depends on.
#[derive(Clone, Copy, Debug)]
pub struct CopyCase {
    pub direction: CopyDirection,
    pub bytes: u64,
    /// Number of spans that are contiguous on both sides.
    pub moves: u64,
    /// The accesses of the kernel, which copies several short spans together.
    pub access: KernelAccess,
    /// The host's side is not page-locked.
    pub is_pageable: bool,
    /// Compute may run concurrently, so kernels get few CTAs.
    pub computes: bool,
    /// How busy compute keeps the device: 0 if a kernel starts at once, 1 if it waits as it does for large kernels.
    pub busy: f64,
    pub ctas: u32,
    /// Number of calls if it is copied as rows.
    pub row_calls: u64,
    /// Its division into chunks, if it can be staged.
    pub staged: Option<Staged>,
}

/// The division of a copy into chunks that pass through staging memory.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    pub chunk: u64,
    /// Number of chunks that fit the staging memory.
    pub parts: u64,
    /// Number of copies from or to the host.
    pub copies: u64,
    /// Number of launches after the first of each chunk: those of blocks with many rows.
    pub more_launches: u64,
    /// They are submitted to the driver in batches.
    pub are_batched: bool,
    /// The calling thread starts it, so no other thread is woken.
    pub is_quick: bool,
}

const US: f64 = 1e-6;
/// From the submission of a run to its first byte.
const START: f64 = 6.0 * US;
/// A call of a batch, without its copies.
const CALL: f64 = 0.4 * US;
/// Additional time for each of the first copies of a run, until the driver's code and data are cached.
const COLD_COPY: f64 = 0.4 * US;
/// Number of copies with cold caches: those of a batch's first call.
const COLD_COPIES: u64 = FIRST_CALL as u64;
/// The first copies of a batch: each takes so much of the measured time longer than a later one, until the driver's code and data are
/// cached.
const FIRST_COPIES: u64 = 128;
const FIRST_MORE: f64 = 0.25;
/// Copies of at most so many bytes from the host are written into the commands of the copy engine by the CPU, if the engine is idle:
/// the first two, or all of the first call of a batch. On an H100, 4 pieces of 18 KiB took 21 us, and to the host 14. Pieces of 26,720
/// bytes and more took no longer than others on an H200.
const MAX_INLINED: u64 = 24 << 10;
/// The rate at which they are written, relative to that of copies from pageable memory, for which the CPU reads and writes too.
const INLINE_RATE: f64 = 0.57;
/// Number of them, if each is a call: the engine is idle again until the second one is written.
const INLINED_CALLS: u64 = 2;
/// CPU time of a copy between staging memory and host, relative to one of a batch without staging memory: 1.05 to 1.25 on an H100 and
/// on H200 hosts.
const STAGED_COPY: f64 = 1.1;
/// Waking another thread of kvmem to make many calls.
const WAKE: f64 = 20.0 * US;
/// A single copy.
const ONLY_COPY: f64 = 0.3 * US;
/// Time of the copy engine between two copies of a batch.
const GAP: f64 = 0.06 * US;
/// The same of a staged copy to the host, which one copy engine executes: a part of the time of its bytes, and at most so much.
/// Batches without staging memory are spread over several engines. Measured on an H100 with copies of 36 KiB to 1.5 MiB, and on
/// H200 hosts.
const STAGED_GAP: f64 = 0.38 * US;
const STAGED_GAP_SHARE: f64 = 0.14;
/// A contiguous span that the kernel copies with all CTAs.
const KERNEL_MOVE: f64 = 0.002 * US;
/// The same within a GPU, for more spans than so many: 65,536 blocks of 4 KiB took 31 us longer than their bytes and the start,
/// and 10,000 took 20 us (`bench/results/h200/02-scattered-device.json`). Shorter rows were not measured; each occupies a
/// warp like a span of 4 KiB.
const KERNEL_MOVE_ON_DEVICE: f64 = 0.0002 * US;
const ON_DEVICE_FROM: f64 = 10_000.0;
/// A contiguous span with the few CTAs that the kernel gets if compute may run, of elements that are transposed, or beside large
/// kernels.
const KERNEL_MOVE_FEW: f64 = 0.008 * US;
/// The same from the host on an idle device: 32,000 pieces of 2 KiB took 1.86 ms instead of the 1.34 ms of many CTAs, on H100 and H200.
/// Writes to the host are not waited for, and cost no more than with many.
const KERNEL_READ_FEW: f64 = 0.017 * US;
/// The rate of six CTAs that read host memory, relative to that of many.
const FEW_READERS: f64 = 0.98;
/// The two launches and the events of a staged copy of one or two chunks.
const STAGE: f64 = 26.0 * US;
/// The same for more chunks: another thread of kvmem is woken and makes the calls.
const HAND_OVER: f64 = 45.0 * US;
/// A launch and four events per chunk, as far as they do not overlap with the copies.
const CHUNK: f64 = 1.6 * US;
/// The duration from which the submission is a negligible part of a transfer.
const SHORT: f64 = 60.0 * US;
/// How much longer than the fastest method another one may take that is chosen for its short calls.
const TOLERANCE: Tolerance = Tolerance { longer: 0.05, later: 1.0 * US };
/// The first call of the driver for one copy between host and device, in CPU time.
const COPY_CALL: f64 = 1.5 * US;
/// A launch of the kernel, in CPU time: 5.4 us on an H200 host.
const LAUNCH: f64 = 5.4 * US;
/// A call that copies rows, without its rows.
const ROW_CALL: f64 = 3.0 * US;
const ROW: f64 = 0.05 * US;
/// A copy within a GPU or between two, in CPU time, by a call of its own or in a batch: 64 of them took 223 to 255 us on an
/// H200 host (`bench/results/h200/02-scattered-device.json`).
const DEVICE_COPY: f64 = 3.5 * US;
/// How much faster and slower than on average a CPU submits copies, for some tenths of a second each.
const CPU_VARIATION: f64 = 1.0 / 3.0;

/// Estimated seconds of a method on a device with these rates: the mean over the two speeds of the CPU. If bytes and CPU take about as
/// long, this is more than at the mean speed, where the bytes hide the CPU's time.
pub fn seconds(method: TransferMethod, case: &CopyCase, rates: &Rates) -> f64 {
    let at = |speed| seconds_at_one_speed(method, case, &rates.submitting([1.0 + speed * CPU_VARIATION; 2]));
    match method {
        TransferMethod::CudaBatch | TransferMethod::CudaStaged => 0.5 * (at(-1.0) + at(1.0)),
        _ => at(0.0),
    }
}

/// The same if the CPU always takes the time of the rates.
fn seconds_at_one_speed(method: TransferMethod, case: &CopyCase, rates: &Rates) -> f64 {
    let (bytes, moves) = (case.bytes as f64, case.moves as f64);
    let own = rates.in_direction(case.direction);
    let rate = if case.is_pageable { rates.pageable } else { own.link };
    match method {
        TransferMethod::CudaBatch => {
            let inlined = inlined(case, rates, case.moves, COLD_COPIES);
            batch(case, bytes / moves.max(1.0) / rate, own.batched, inlined)
        }
        TransferMethod::Cuda2d => {
            let cold = case.moves.min(COLD_COPIES) as f64 * COLD_COPY;
            let each = if host_is_a_side(case.direction) { ROW } else { DEVICE_COPY };
            START + cold + case.row_calls as f64 * ROW_CALL + moves * each + bytes / (0.98 * rate)
        }
        TransferMethod::CudaKernel | TransferMethod::CudaStaged => {
            let [alone, beside] = alone_and_beside(method, case, rates);
            alone + waiting(case.busy) * (beside - alone).max(0.0)
        }
        _ => {
            let wake = if case.moves > QUICK_CALLS as u64 { WAKE } else { 0.0 };
            let cold = (case.moves.min(COLD_COPIES) as f64 - 0.5).max(0.0) * COLD_COPY;
            let each = copy_call(case, rates);
            let first = ONLY_COPY + inlined(case, rates, case.moves, INLINED_CALLS);
            START + first + wake + cold + (moves - 1.0).max(0.0) * each + bytes / rate
        }
    }
}

/// CPU time of the first `most` of so many equal copies, if they are written into the commands of the copy engine.
fn inlined(case: &CopyCase, rates: &Rates, copies: u64, most: u64) -> f64 {
    let size = case.bytes / copies.max(1);
    if case.direction != CopyDirection::ToDevice || case.is_pageable || size > MAX_INLINED {
        return 0.0;
    }
    copies.min(most) as f64 * size as f64 / (INLINE_RATE * rates.pageable)
}

/// Estimated seconds of a method as a part of a graph: a batch becomes one copy after the other, and staging memory, which is
/// shared with other transfers, can't be used.
pub fn seconds_in_graph(method: TransferMethod, case: &CopyCase, rates: &Rates) -> f64 {
    match method {
        TransferMethod::CudaStaged => f64::INFINITY,
        TransferMethod::CudaBatch => seconds(TransferMethod::CudaCopy, case, rates),
        _ => seconds(method, case, rates),
    }
}

/// Seconds per small copy, if each is a call. Within a GPU and between two, it takes as long as in a batch.
fn copy_call(case: &CopyCase, rates: &Rates) -> f64 {
    match case.direction {
        CopyDirection::ToDevice => FROM_HOST * rates.copy,
        CopyDirection::ToHost => rates.copy,
        _ => rates.copy.max(rates.in_direction(case.direction).batched),
    }
}

/// The best method: the fastest, or one that takes little longer and less CPU time of the submitting thread, which counts for a
/// short transfer: an engine submits small transfers in every step, and the submitting thread has other work.
pub fn best(candidates: &[Candidate], case: &CopyCase, rates: &Rates) -> Option<TransferMethod> {
    outcome::best(candidates, &TOLERANCE, |candidate| {
        (1.0 - candidate.seconds / SHORT).max(0.0) * submission(candidate.method, case, rates)
    })
}

/// CPU time of a method's driver calls, in seconds.
fn submission(method: TransferMethod, case: &CopyCase, rates: &Rates) -> f64 {
    let moves = case.moves as f64;
    let is_host_a_side = host_is_a_side(case.direction);
    match method {
        TransferMethod::CudaKernel => LAUNCH,
        TransferMethod::CudaStaged => STAGE,
        TransferMethod::CudaBatch => {
            let batched = rates.in_direction(case.direction).batched;
            calls_of(case, case.moves, rates)
                + if is_host_a_side { submitting(case.moves, batched) } else { moves * DEVICE_COPY }
        }
        TransferMethod::Cuda2d => {
            case.row_calls as f64 * ROW_CALL + moves * if is_host_a_side { COLD_COPY } else { DEVICE_COPY }
        }
        _ => {
            let cold = case.moves.min(COLD_COPIES) as f64 * COLD_COPY;
            let inlined = inlined(case, rates, case.moves, INLINED_CALLS);
            let calls = COPY_CALL + (moves - 1.0).max(0.0) * copy_call(case, rates);
            cold + inlined + if is_host_a_side { calls } else { moves * DEVICE_COPY }
        }
    }
}

/// Seconds of a batch. The CPU makes one call after the other, and the copy engine executes the copies of the calls that
/// have returned. `inlined` is additional CPU time of the first call.
fn batch(case: &CopyCase, bytes: f64, batched: f64, inlined: f64) -> f64 {
    let (copies, mut done) = (case.moves, 0);
    let wake = if copies > QUICK_BATCH as u64 { WAKE } else { 0.0 };
    let cold = copies.min(COLD_COPIES) as f64 * COLD_COPY;
    let (mut cpu, mut engine) = (START + wake + cold + inlined, 0.0f64);
    for (size, calls) in equal_calls(copies as usize, EngineLoad::Idle) {
        let (call, moving) = (CALL + size as f64 * batched, size as f64 * (GAP + bytes));
        cpu += CALL + submitting(done + size as u64, batched) - submitting(done, batched);
        done += size as u64;
        engine = engine.max(cpu) + moving;
        // The engine waits for each of the other equal calls, or for none.
        let others = (calls - 1) as f64;
        cpu += others * call;
        engine = (engine + others * moving).max(cpu + moving);
    }
    engine
}

/// CPU time of the copies of a batch, without their calls. `batched` is that of a later copy.
pub fn submitting(copies: u64, batched: f64) -> f64 {
    (copies as f64 + FIRST_MORE * copies.min(FIRST_COPIES) as f64) * batched
}

/// CPU time of the calls of a batch of so many copies on an idle copy engine, in seconds, without the time to submit each copy.
pub fn calls_of(case: &CopyCase, copies: u64, rates: &Rates) -> f64 {
    let cold = copies.min(COLD_COPIES) as f64 * COLD_COPY;
    let calls: usize = equal_calls(copies as usize, EngineLoad::Idle).map(|(_, calls)| calls).sum();
    cold + calls as f64 * CALL + inlined(case, rates, copies, COLD_COPIES)
}

/// The same of a staged copy, with those of its chunks, and the CPU time of its copies.
pub fn submission_of_staged(case: &CopyCase, staged: &Staged, batched: f64, rates: &Rates) -> [f64; 2] {
    let chunks = case.bytes.div_ceil(staged.chunk);
    let launches = (chunks + staged.more_launches) as f64 * LAUNCH;
    let other = (chunks * (CALLS as u64 - 1)) as f64 * CALL;
    [
        calls_of(case, staged.copies, rates) + launches + other,
        submitting(staged.copies, STAGED_COPY * batched),
    ]
}

/// Seconds of a method with a kernel: on an idle device, and on one that executes large kernels.
pub fn alone_and_beside(method: TransferMethod, case: &CopyCase, rates: &Rates) -> [f64; 2] {
    match method {
        TransferMethod::CudaStaged => staged(case, rates),
        _ => kernel(case, rates),
    }
}

fn kernel(case: &CopyCase, rates: &Rates) -> [f64; 2] {
    let moves = kernel_moves(case);
    let with = |each: f64, limits: KernelRates| {
        START
            + rates.kernel_start
            + moves * each
            + access_time::seconds(case.direction, case.bytes, &case.access, &limits)
    };
    let own = rates.in_direction(case.direction);
    let readers = if case.computes && case.direction == CopyDirection::ToDevice { FEW_READERS } else { 1.0 };
    let transposed = case.access.transposed as f64 / case.bytes.max(1) as f64;
    let with_few = |each: f64| transposed * KERNEL_MOVE_FEW + (1.0 - transposed) * each;
    let each = match (case.computes, case.direction) {
        (true, CopyDirection::ToDevice) => with_few(KERNEL_READ_FEW),
        (true, CopyDirection::ToHost) => with_few(KERNEL_MOVE),
        _ => KERNEL_MOVE,
    };
    let within = rates.on_device.kernel;
    let alone = with(
        each,
        KernelRates { most: readers * own.kernel, ctas: f64::from(case.ctas) * own.cta, own: within },
    );
    if !host_is_a_side(case.direction) {
        return [alone; 2];
    }
    let limits = kernel_rates_beside(case, rates);
    let moving = with(KERNEL_MOVE_FEW, limits);
    let (beside, more) = match case.direction {
        CopyDirection::ToDevice => (KERNEL_TO_DEVICE, KERNEL_MISSES.mean(moving)),
        // On H200 hosts, kernels to the host took a seventh of their own time longer than the large kernel beside them.
        _ => (KERNEL_TO_HOST, 0.15 * moving),
    };
    let in_gap = with(KERNEL_MOVE_IN_GAP, limits);
    [alone, (beside.mean(in_gap) + more).max(moving + 0.05 * beside.turn)]
}

/// The number of moves that each cost [`KERNEL_MOVE`] in addition to their accesses. Within a GPU, transposed elements
/// do not.
fn kernel_moves(case: &CopyCase) -> f64 {
    let moves = case.access.moves as f64;
    if case.direction != CopyDirection::OnDevice {
        return moves;
    }
    let moves = moves * (1.0 - case.access.transposed as f64 / case.bytes.max(1) as f64);
    let more = (moves - ON_DEVICE_FROM).max(0.0);
    moves - more + more * KERNEL_MOVE_ON_DEVICE / KERNEL_MOVE
}

/// The rates of the kernel concurrently with compute: each CTA is slower, and all together reach nine tenths.
fn kernel_rates_beside(case: &CopyCase, rates: &Rates) -> KernelRates {
    let own = rates.in_direction(case.direction);
    let each = cta_share_beside(case.direction, case.bytes / case.moves.max(1));
    KernelRates {
        most: MAX_BESIDE * own.kernel,
        ctas: f64::from(case.ctas) * each * own.cta,
        own: rates.on_device.kernel,
    }
}

pub fn host_is_a_side(direction: CopyDirection) -> bool {
    matches!(direction, CopyDirection::ToDevice | CopyDirection::ToHost)
}

/// Minimum seconds of a staged copy, for any division into chunks.
pub fn min_staged(case: &CopyCase, rates: &Rates) -> f64 {
    START + STAGE + case.bytes as f64 / rates.in_direction(case.direction).link
}

/// Time of the copy engine between two staged copies, each of which takes `copying` for its bytes.
fn staged_gap(direction: CopyDirection, copying: f64) -> f64 {
    match direction {
        CopyDirection::ToHost => (STAGED_GAP_SHARE * copying).clamp(GAP, STAGED_GAP),
        _ => GAP,
    }
}

fn staged(case: &CopyCase, rates: &Rates) -> [f64; 2] {
    let Some(Staged { chunk, parts, copies, more_launches, are_batched, is_quick }) = case.staged else {
        return [f64::INFINITY; 2];
    };
    let (bytes, chunk) = (case.bytes as f64, chunk as f64);
    let own = rates.in_direction(case.direction);
    let chunks = (bytes / chunk).ceil();
    let inlined = inlined(case, rates, copies, COLD_COPIES);
    let submitting = submitting(copies, STAGED_COPY * own.batched) + inlined;
    let (copies, rate) = (copies as f64, own.link);
    let copying = bytes / rate;
    let engine = copies * staged_gap(case.direction, copying / copies.max(1.0)) + copying;
    // The last call has half of the copies of a full one on average. The calls of the first chunk grow.
    let last_call = (FULL_CALL as f64).min(if chunks > 1.0 { copies / chunks } else { copies / 3.0 }) / 2.0;
    let link = match are_batched {
        // The CPU submits the next call's copies while the copy engine executes those of this one.
        true => engine.max(submitting + engine * last_call / copies.max(1.0)),
        false => copies * rates.copy + copying,
    };
    let launches = more_launches as f64 * LAUNCH;
    let calls = launches + if is_quick { STAGE } else { HAND_OVER + chunks * CHUNK };
    // The copy engine waits until the kernel has gathered the first chunk, or the kernel scatters the last, which may be
    // smaller. Concurrently with compute, the kernel fills or drains all parts whenever it starts, and the copy engine
    // works on them until it starts again.
    let exposed = match case.direction {
        CopyDirection::ToHost => chunk,
        _ => bytes - chunk * (chunks - 1.0).max(0.0),
    };
    let within = &rates.on_device;
    let gathering = within.kernel.min(f64::from(staging_ctas(case.computes)) * within.cta);
    let gather = case.access.moves as f64 * exposed / bytes.max(1.0) * KERNEL_MOVE + exposed / gathering;
    // Short rows take the kernel longer than the link.
    let gathers = case.access.moves as f64 * KERNEL_MOVE;
    let alone = START + calls + gather + link.max(gathers);
    // What fits the parts is gathered, or scattered, at once.
    let rounds = bytes / (parts as f64 * chunk);
    let turns = if rounds > 1.0 { rounds * TURN } else { 0.0 };
    // To the host, the copies are submitted while the kernel waits.
    let (beside, copying) = match case.direction {
        CopyDirection::ToHost => (STAGED_TO_HOST, (0.5 * submitting).max(copies * GAP + copying)),
        _ => (STAGED_TO_DEVICE, link),
    };
    let busy = link + gather;
    let missed = STAGED_MISSES.mean(busy);
    let wait = if busy > STAGED_MISSES.all { LONG_WAIT } else { 0.0 };
    let long = START + calls + chunk / 800e9 + wait + link.max(gathers).max(turns);
    [alone, long.max(beside.mean(START + STAGE_IN_GAP + copying) + missed)]
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod recorded_points;

pub const QUICK_CALLS: usize = 16;
pub const QUICK_BATCH: usize = 128;
/// Driver calls of a chunk of a staged copy with one launch, without those for its copies.
const CALLS: usize = 7;

/// Whether the calling thread submits a staged copy. `launches` is the number of kernel launches of all chunks, `copies` that of
/// the copies between staging memory and host.
pub fn is_quick(chunks: usize, launches: usize, copies: usize) -> bool {
    (CALLS - 1) * chunks + launches <= QUICK_CALLS && copies <= QUICK_BATCH
}
