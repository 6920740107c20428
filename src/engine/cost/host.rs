// SPDX-License-Identifier: Apache-2.0
//! The rate at which this machine copies host memory, measured once per process when it is first needed.

use std::time::Instant;

use once_cell::sync::OnceCell;

use crate::base::{PerProcess, Pool, Result, lists, thread};

/// Bytes that each thread copies. Together they exceed the caches of a core.
const BYTES: usize = 4 << 20;
const ROUNDS: usize = 3;

/// Size of a short row, whose bytes cost little beside the row itself, and the number of rows that are interleaved in the
/// source: heads of a token.
const ROW: usize = 8;
const HEADS: usize = 16;

/// Bytes per second of one thread, and of all.
#[derive(Clone, Copy, Debug)]
struct Measured {
    one: f64,
    all: f64,
    /// Seconds of one thread per row, in addition to its bytes.
    row: f64,
}

/// Seconds in which so many threads copy `bytes` bytes in `rows` rows. Fails if there is no memory to measure that; the next
/// call tries again.
pub fn seconds(bytes: u64, rows: u64, threads: usize) -> Result<f64> {
    static RATES: PerProcess<OnceCell<Measured>> = PerProcess::new();
    let measured = RATES.get(OnceCell::new).get_or_try_init(measure)?;
    Ok(measured.seconds(bytes, rows, threads))
}

impl Measured {
    fn seconds(&self, bytes: u64, rows: u64, threads: usize) -> f64 {
        let rate = between(self.one, self.all, threads);
        // As many threads as the memory keeps busy share the rows.
        bytes as f64 / rate + rows as f64 * self.row * self.one / rate
    }
}

/// Threads add up to the limit of the memory.
fn between(one: f64, all: f64, threads: usize) -> f64 {
    (one * threads.max(1) as f64).min(one.max(all))
}

fn measure() -> Result<Measured> {
    let one = rate(1)?;
    Ok(Measured { one, all: rate(Pool::parallelism())?, row: row(one)? })
}

/// A source and a destination.
fn buffers() -> Result<(Vec<u8>, Vec<u8>)> {
    Ok((buffer(1)?, buffer(2)?))
}

fn buffer(value: u8) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    lists::reserve(&mut bytes, BYTES)?;
    bytes.resize(BYTES, value);
    Ok(bytes)
}

/// Seconds per row, beyond those of its bytes: short rows are gathered.
fn row(rate: f64) -> Result<f64> {
    let (from, mut to) = buffers()?;
    let rows = BYTES / ROW;
    // As in a transfer, the compiler does not know the size: it would replace the call by a move of a register.
    let size = std::hint::black_box(ROW);
    let gather = |to: &mut [u8]| {
        let started = Instant::now();
        for (index, row) in to.chunks_exact_mut(ROW).enumerate() {
            let (head, token) = (index / (rows / HEADS), index % (rows / HEADS));
            let at = (token * HEADS + head) * ROW;
            row[..size].copy_from_slice(&from[at..at + size]);
        }
        started.elapsed().as_secs_f64()
    };
    let best = (0..ROUNDS).map(|_| gather(&mut to)).fold(f64::INFINITY, f64::min);
    Ok(((best - BYTES as f64 / rate) / rows as f64).max(0.0))
}

/// The best of a few rounds.
fn rate(threads: usize) -> Result<f64> {
    let mut buffers = (0..threads).map(|_| buffers()).collect::<Result<Vec<_>>>()?;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        best = best.min(copy_all(&mut buffers));
    }
    Ok((threads * BYTES) as f64 / best.max(1e-9))
}

/// Duration of the slowest thread in seconds.
fn copy_all(buffers: &mut [(Vec<u8>, Vec<u8>)]) -> f64 {
    let copy = |(from, to): &mut (Vec<u8>, Vec<u8>)| {
        let started = Instant::now();
        to.copy_from_slice(from);
        started.elapsed().as_secs_f64()
    };
    let Some((own, others)) = buffers.split_first_mut() else { return f64::INFINITY };
    std::thread::scope(|scope| {
        let spawn = |pair| thread::spawn_scoped(scope, "kvmem-rate", move || copy(pair)).ok();
        let started: Vec<_> = others.iter_mut().filter_map(spawn).collect();
        let slowest = copy(own);
        started.into_iter().filter_map(|thread| thread.join().ok()).fold(slowest, f64::max)
    })
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
        let rates = Measured { one: 10e9, all: 20e9, row: 5e-9 };
        let rate =
            |size: u64, threads| 1e6 * size as f64 / rates.seconds(1_000_000 * size, 1_000_000, threads);
        assert!((rate(64, 1) / (64.0 / 11.4e-9) - 1.0).abs() < 1e-9);
        assert!((rate(64, 2) / rate(64, 1) - 2.0).abs() < 1e-9);
        assert!(rate(1 << 20, 1) > 0.999 * 10e9, "long rows cost nothing");
    }

    #[test]
    fn a_machine_copies_something() {
        let (plain, rows) = (seconds(1 << 20, 1, 1).unwrap(), seconds(1 << 20, 1 << 14, 1).unwrap());
        assert!(plain > 0.0 && rows.is_finite() && plain <= rows);
    }
}
