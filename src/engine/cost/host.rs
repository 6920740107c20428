// SPDX-License-Identifier: Apache-2.0
//! The rates at which this machine copies host memory, measured once per process when they are first needed: of bytes that the
//! caches have, and of others.

use std::time::Instant;

use once_cell::sync::OnceCell;

use crate::base::{PerProcess, Pool, Result, lists, thread};
use crate::copy::host;

/// Bytes that a thread copies to measure copies within the caches, which they do not bypass. With the destination they exceed those
/// of a core.
const NEAR: usize = 2 << 20;
/// The maximum size of all memory that is used to measure, unless there are so many threads that each copies [`NEAR`] bytes.
const MAX_MEMORY: usize = 64 << 20;
/// The size of the last cache, if the kernel does not report it.
const USUAL_CACHE: usize = 32 << 20;
/// The number of measurements of each, of which the shortest counts.
const ROUNDS: usize = 2;

/// Size of a short row, whose bytes cost little beside the row itself. Several are in one cache line.
const SHORT: usize = 8;
/// Size of a row that consists of cache lines.
const LINES: usize = 128;
/// The number of rows that are interleaved in the source: heads of a token.
const HEADS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Measured {
    near: Rates,
    far: Rates,
    /// The maximum size of what the caches have.
    max_near: u64,
}

#[derive(Clone, Copy, Debug)]
struct Rates {
    /// Bytes per second of one thread, and of all.
    one: f64,
    all: f64,
    /// Seconds of one thread per row, in addition to its bytes: of rows that share cache lines, and of others.
    short_row: f64,
    row: f64,
}

/// A source and a destination.
type Buffers = (Vec<u8>, Vec<u8>);

/// Seconds in which so many threads copy `bytes` bytes in `rows` rows. Fails if there is no memory to measure that; the next
/// call tries again.
pub fn seconds(bytes: u64, rows: u64, threads: usize) -> Result<f64> {
    static RATES: PerProcess<OnceCell<Measured>> = PerProcess::new();
    let measured = RATES.get(OnceCell::new).get_or_try_init(measure)?;
    Ok(measured.rates(bytes).seconds(bytes, rows, threads))
}

impl Measured {
    /// Source and destination of few bytes may be in the caches.
    fn rates(&self, bytes: u64) -> &Rates {
        if bytes <= self.max_near { &self.near } else { &self.far }
    }
}

impl Rates {
    fn seconds(&self, bytes: u64, rows: u64, threads: usize) -> f64 {
        let rate = between(self.one, self.all, threads);
        let row = if bytes / rows.max(1) < LINES as u64 { self.short_row } else { self.row };
        // As many threads as the memory keeps busy share the rows.
        bytes as f64 / rate + rows as f64 * row * self.one / rate
    }
}

/// Threads add up to the limit of the memory.
fn between(one: f64, all: f64, threads: usize) -> f64 {
    (one * threads.max(1) as f64).min(one.max(all))
}

fn measure() -> Result<Measured> {
    let (threads, cache) = (Pool::parallelism(), last_cache());
    let size = ((2 * cache).min(MAX_MEMORY) / (2 * threads)).max(NEAR);
    let mut all =
        (0..threads).map(|_| Ok((buffer(size, 1)?, buffer(size, 2)?))).collect::<Result<Vec<_>>>()?;
    let one = rate(best(|| copy_each(&mut all[..1], NEAR)), NEAR);
    let short_row = row(SHORT, &mut all[..1], NEAR, one);
    let near = Rates {
        one,
        all: rate(best(|| copy_all(&mut all, NEAR)), threads * NEAR),
        short_row,
        row: row(LINES, &mut all[..1], NEAR, one),
    };
    let one = rate(best(|| copy_each(&mut all, size)), threads * size);
    let far = Rates {
        one,
        all: rate(best(|| copy_all(&mut all, size)), threads * size),
        // Those of a line are copied soon after each other.
        short_row,
        row: row(LINES, &mut all, size, one),
    };
    let is_streamed = host::suits_streaming(cache as u64 / 2);
    Ok(Measured { near, far, max_near: if is_streamed { 2 * NEAR as u64 - 1 } else { cache as u64 / 2 } })
}

/// The size of the largest cache of a processor.
fn last_cache() -> usize {
    let size = |index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
    };
    (0..8).filter_map(size).max().filter(|size| *size > 0).unwrap_or(USUAL_CACHE)
}

fn buffer(size: usize, value: u8) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    lists::reserve(&mut bytes, size)?;
    bytes.resize(size, value);
    Ok(bytes)
}

fn rate(seconds: f64, bytes: usize) -> f64 {
    bytes as f64 / seconds.max(1e-9)
}

/// The duration of the shortest of a few rounds.
fn best(round: impl FnMut() -> f64) -> f64 {
    std::iter::repeat_with(round).take(ROUNDS).fold(f64::INFINITY, f64::min)
}

fn copy((from, to): &mut Buffers, size: usize) -> f64 {
    let started = Instant::now();
    host::copy_bytes(&from[..size], &mut to[..size]);
    started.elapsed().as_secs_f64()
}

/// Duration of one thread for all of them.
fn copy_each(buffers: &mut [Buffers], size: usize) -> f64 {
    buffers.iter_mut().map(|pair| copy(pair, size)).sum()
}

/// Duration of the slowest of as many threads.
fn copy_all(buffers: &mut [Buffers], size: usize) -> f64 {
    let Some((own, others)) = buffers.split_first_mut() else { return f64::INFINITY };
    std::thread::scope(|scope| {
        let spawn = |pair| thread::spawn_scoped(scope, "kvmem-rate", move || copy(pair, size)).ok();
        let started: Vec<_> = others.iter_mut().filter_map(spawn).collect();
        let slowest = copy(own, size);
        started.into_iter().filter_map(|thread| thread.join().ok()).fold(slowest, f64::max)
    })
}

/// Seconds per row of so many bytes, beyond those of its bytes: one thread gathers the rows of the first `size` bytes.
fn row(row_size: usize, buffers: &mut [Buffers], size: usize, rate: f64) -> f64 {
    let of_head = size / HEADS / row_size - 1;
    let is_streamed = size > NEAR;
    let gather = |(from, to): &mut Buffers| {
        // What bypasses the caches is whole lines.
        let first = to.as_ptr().align_offset(host::LINE).min(host::LINE);
        let rows = to[first..].chunks_exact_mut(of_head * row_size).take(HEADS);
        rows.enumerate().for_each(|(head, rows)| {
            host::gather_rows(&from[head * row_size..], rows, row_size, HEADS * row_size, is_streamed);
        });
    };
    let rows = (buffers.len() * HEADS * of_head) as f64;
    let seconds = best(|| {
        let started = Instant::now();
        buffers.iter_mut().for_each(gather);
        started.elapsed().as_secs_f64()
    });
    ((seconds - rows * row_size as f64 / rate) / rows).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_to_what_memory_gives() {
        assert_eq!(between(4.0, 10.0, 1), 4.0);
        assert_eq!(between(4.0, 10.0, 2), 8.0);
        assert_eq!(between(4.0, 10.0, 16), 10.0);
        assert_eq!(between(4.0, 3.0, 2), 4.0, "more threads are not slower");
    }

    #[test]
    fn short_rows_take_longer_than_their_bytes() {
        let rates = Rates { one: 10e9, all: 20e9, short_row: 5e-9, row: 10e-9 };
        let rate =
            |size: u64, threads| 1e6 * size as f64 / rates.seconds(1_000_000 * size, 1_000_000, threads);
        assert!((rate(64, 1) / (64.0 / 11.4e-9) - 1.0).abs() < 1e-9);
        assert!((rate(64, 2) / rate(64, 1) - 2.0).abs() < 1e-9);
        assert!((rate(128, 1) / (128.0 / 22.8e-9) - 1.0).abs() < 1e-9, "no line has two");
        assert!(rate(1 << 20, 1) > 0.999 * 10e9, "long rows cost nothing");
    }

    #[test]
    fn what_the_caches_cannot_have_is_copied_at_the_rates_of_memory() {
        let rates = |one| Rates { one, all: one, short_row: 0.0, row: 0.0 };
        let measured = Measured { near: rates(40e9), far: rates(10e9), max_near: 16 << 20 };
        let rate = |bytes: u64| bytes as f64 / measured.rates(bytes).seconds(bytes, 1, 1);
        assert!(rate(16 << 20) > 39e9 && rate((16 << 20) + 1) < 11e9);
    }

    #[test]
    fn a_machine_copies_something() {
        let (plain, rows) = (seconds(1 << 20, 1, 1).unwrap(), seconds(1 << 20, 1 << 14, 1).unwrap());
        assert!(plain > 0.0 && rows.is_finite() && plain <= rows);
        assert!(last_cache() >= 1 << 20);
    }
}
