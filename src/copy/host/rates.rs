// SPDX-License-Identifier: Apache-2.0
//! The rates at which this machine copies host memory, measured once per process when they are first needed: of bytes that the
//! caches have, and of others.
//!
//! A measurement copies many pieces and takes the median of their durations. So what other processes do in some of them does not
//! count: the scheduler takes a busy processor away for milliseconds, and a piece takes some microseconds. The caller waits for it,
//! so it ends soon: a machine on which it takes longer is measured with less memory, fewer threads and fewer pieces.

use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::{copy_spans, suits_streaming};
use crate::base::sorting::sort_few_by;
use crate::base::{PerProcess, Pool, Result, lists, thread};

/// The size of a copy that is timed: that of a few blocks.
const PIECE: usize = 256 << 10;
/// Bytes that a thread copies to measure copies within the caches, which they do not bypass. With the destination they exceed the
/// second-level caches of most cores.
const NEAR: usize = 1 << 20;
/// The maximum size of a transfer whose bytes may be in the caches. Larger ones bypass them.
const MAX_NEAR: u64 = (4 << 20) - 1;
/// The size of all memory that is used to measure, unless there are so many threads that each copies [`NEAR`] bytes. The first use of
/// its pages takes most of the time of the measurement, 15 to 30 ms.
const MEMORY: usize = 32 << 20;
/// The time of the measurement. Pages are used for the first time in the first half of it.
const TIME: Duration = Duration::from_millis(40);
/// Bytes that one thread copies for a rate.
const BY_ONE: usize = 2 << 20;
/// Bytes that each of all threads copies for a rate: more than what one copies before the last one has started.
const BY_EACH: usize = 16 << 20;

/// Sizes of rows that are measured: a cache line, one that the caches are not bypassed for, and one that they are bypassed for.
const ROWS: [usize; 3] = [64, 512, 2048];
/// Rows that are copied one after the other are so many rows apart in the source: the processor cannot read ahead. A prime
/// number.
const SCATTER: usize = 1009;

#[derive(Clone, Copy, Debug)]
struct Measured {
    near: Rates,
    far: Rates,
}

#[derive(Clone, Copy, Debug)]
struct Rates {
    /// Bytes per second of one thread, and of all.
    one: f64,
    all: f64,
    /// Seconds of one thread per row of each of [`ROWS`], where rows are apart.
    rows: [f64; ROWS.len()],
}

/// A source and a destination of equal size.
struct Buffers {
    from: Vec<u8>,
    to: Vec<u8>,
    /// When the measurement has to end.
    end: Instant,
}

/// Seconds in which so many threads copy `bytes` bytes in `rows` rows. Fails if there is no memory to measure that; the next
/// call tries again.
pub fn seconds(bytes: u64, rows: u64, threads: usize) -> Result<f64> {
    static RATES: PerProcess<OnceCell<Measured>> = PerProcess::new();
    let measured =
        RATES.get(OnceCell::new).get_or_try_init(|| measure(Pool::parallelism(), Instant::now()))?;
    Ok(measured.rates(bytes).seconds(bytes, rows, threads))
}

impl Measured {
    /// Source and destination of few bytes may be in the caches.
    fn rates(&self, bytes: u64) -> &Rates {
        if bytes <= MAX_NEAR { &self.near } else { &self.far }
    }
}

impl Rates {
    /// The rates of one thread. `size` are the bytes of each buffer, which it copies again and again.
    fn measure(buffers: &mut [Buffers], size: usize, is_streamed: bool) -> Self {
        let rows = ROWS.map(|row| row as f64 / rate(buffers, size, row, is_streamed));
        let [.., longest] = rows;
        // memcpy of many bytes is slower than of some on some processors, which blocks that are copied in tiles do not use.
        let one = rate(buffers, size, PIECE, is_streamed).max(ROWS[ROWS.len() - 1] as f64 / longest);
        Self { one, all: one, rows }
    }

    fn seconds(&self, bytes: u64, rows: u64, threads: usize) -> f64 {
        let rows = rows.max(1) as f64;
        // As many threads as the memory keeps busy share the rows.
        rows * self.seconds_of_row(bytes as f64 / rows) * self.one / between(self.one, self.all, threads)
    }

    /// What one thread takes for a row: linear between the sizes that were measured, and the rate of many bytes beyond them.
    fn seconds_of_row(&self, size: f64) -> f64 {
        let [.., longest] = self.rows;
        let beyond = (size - ROWS[ROWS.len() - 1] as f64).max(0.0);
        let index = ROWS[1..].iter().take_while(|row| size > **row as f64).count().min(ROWS.len() - 2);
        let [from, to] = [ROWS[index], ROWS[index + 1]].map(|row| row as f64);
        let part = ((size - from) / (to - from)).clamp(0.0, 1.0);
        let measured = self.rows[index] + part * (self.rows[index + 1] - self.rows[index]);
        if beyond > 0.0 { longest + beyond / self.one } else { measured }
    }
}

/// Threads add up to the limit of the memory.
fn between(one: f64, all: f64, threads: usize) -> f64 {
    (one * threads.max(1) as f64).min(one.max(all))
}

fn measure(threads: usize, begun: Instant) -> Result<Measured> {
    let mut all = buffers(threads, begun)?;
    let size = all.iter().map(|each| each.to.len()).min().unwrap_or(NEAR);
    let is_streamed = suits_streaming(u64::MAX);
    // One thread copies what the caches have.
    let near = Rates::measure(&mut all[..1], NEAR, false);
    let far = Rates::measure(&mut all, size, is_streamed);
    Ok(Measured { near, far: Rates { all: rate_of_all(&mut all, size, is_streamed), ..far } })
}

/// Those of each thread; after half of the time of fewer threads, and of one at least.
fn buffers(threads: usize, begun: Instant) -> Result<Vec<Buffers>> {
    let (size, half) = ((MEMORY / (2 * threads)).max(NEAR), begun + TIME / 2);
    let may_use = |number: &usize| *number == 0 || Instant::now() < half;
    (0..threads).take_while(may_use).map(|_| Buffers::new(size, half, begun + TIME)).collect()
}

impl Buffers {
    /// Their pages are in memory. After `half` they become no larger, but have [`NEAR`] bytes.
    fn new(size: usize, half: Instant, end: Instant) -> Result<Self> {
        let mut buffers = Self { from: Vec::new(), to: Vec::new(), end };
        for bytes in [&mut buffers.from, &mut buffers.to] {
            lists::reserve(bytes, size)?;
        }
        while buffers.to.len() < NEAR || (buffers.to.len() < size && Instant::now() < half) {
            let more = (buffers.to.len() + NEAR).min(size);
            buffers.from.resize(more, 1);
            buffers.to.resize(more, 2);
        }
        Ok(buffers)
    }

    /// Copies so many bytes in pieces, from the first one on and again, and returns the seconds of each piece. Rows are at every second
    /// place of their size. At the end of the measurement it is one piece.
    fn time(&mut self, size: usize, bytes: usize, row: usize, is_streamed: bool) -> Vec<f64> {
        let (in_piece, pitch) = (PIECE / row, if row < PIECE { 2 * row } else { row });
        let (places, end) = (size / pitch, self.end);
        let time = |piece| {
            let rows = (piece * in_piece..(piece + 1) * in_piece)
                .map(|index| [index * SCATTER % places * pitch, index % places * pitch]);
            let started = Instant::now();
            copy_spans(&self.from, &mut self.to, row, rows, is_streamed);
            started.elapsed().as_secs_f64().max(1e-9)
        };
        (0..(bytes / PIECE).max(1))
            .take_while(|piece| *piece == 0 || Instant::now() < end)
            .map(time)
            .collect()
    }
}

/// Bytes per second of one thread in rows of this size.
fn rate(buffers: &mut [Buffers], size: usize, row: usize, is_streamed: bool) -> f64 {
    let bytes = BY_ONE / buffers.len().max(1);
    let used = if buffers.iter().any(|each| Instant::now() < each.end) { buffers.len() } else { 1 };
    let pieces =
        buffers[..used].iter_mut().flat_map(|each| each.time(size, bytes, row, is_streamed)).collect();
    PIECE as f64 / median(pieces)
}

/// Bytes per second of as many threads as there are buffers.
fn rate_of_all(buffers: &mut [Buffers], size: usize, is_streamed: bool) -> f64 {
    let rate = |each: &mut Buffers| PIECE as f64 / median(each.time(size, BY_EACH, PIECE, is_streamed));
    let Some((own, others)) = buffers.split_first_mut() else { return 0.0 };
    std::thread::scope(|scope| {
        let spawn = |each| thread::spawn_scoped(scope, "kvmem-rate", move || rate(each)).ok();
        let started: Vec<_> = others.iter_mut().filter_map(spawn).collect();
        let own = rate(own);
        started.into_iter().filter_map(|thread| thread.join().ok()).fold(own, |sum, rate| sum + rate)
    })
}

fn median(mut durations: Vec<f64>) -> f64 {
    sort_few_by(&mut durations, f64::total_cmp);
    durations.get(durations.len() / 2).copied().unwrap_or(f64::INFINITY)
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

    fn rates(one: f64) -> Rates {
        Rates { one, all: 2.0 * one, rows: [20e-9, 60e-9, 220e-9] }
    }

    #[test]
    fn rows_take_what_rows_of_their_size_took() {
        let seconds = |size: u64| rates(10e9).seconds(1_000_000 * size, 1_000_000, 1) / 1e6;
        let near =
            |size: u64, expected: f64| assert!((seconds(size) / expected - 1.0).abs() < 1e-9, "{size}");
        near(8, 20e-9); // the time of a line
        near(64, 20e-9);
        near(288, 40e-9);
        near(512, 60e-9);
        near(1280, 140e-9);
        near(2048, 220e-9);
        near(12_048, 220e-9 + 1e-6);
        let long = rates(10e9).seconds(10_000_000_000, 1, 1);
        assert!((1.0..1.001).contains(&long), "a long row costs nothing");
    }

    #[test]
    fn threads_share_the_rows() {
        let seconds = |threads| rates(10e9).seconds(64_000_000, 1_000_000, threads);
        assert!((seconds(1) / seconds(2) - 2.0).abs() < 1e-9);
        assert_eq!(seconds(2), seconds(3));
    }

    #[test]
    fn what_the_caches_cannot_have_is_copied_at_the_rates_of_memory() {
        let measured = Measured { near: rates(40e9), far: rates(10e9) };
        let rate = |bytes: u64| bytes as f64 / measured.rates(bytes).seconds(bytes, 1, 1);
        assert!(rate(MAX_NEAR) > 39e9 && rate(MAX_NEAR + 1) < 11e9);
    }

    /// Some of the pieces are slow because another process has the processor, or its memory.
    #[test]
    fn what_disturbs_less_than_half_of_the_pieces_does_not_count() {
        let durations = [12.0, 900.0, 13.0, 4000.0, 11.0, 14.0, 80.0, 13.0, 13.0].map(|micros| micros * 1e-6);
        assert_eq!(median(durations.to_vec()), 13e-6);
        assert_eq!(median(vec![]), f64::INFINITY);
    }

    /// As on a machine where the first use of memory takes long.
    #[test]
    fn a_late_measurement_uses_little_memory_and_copies_one_piece_for_each_rate() {
        let (late, early) = (Instant::now() - 2 * TIME, Instant::now() + Duration::from_secs(600));
        for (begun, threads, size, pieces) in [(late, 1, NEAR, 1), (early, 3, MEMORY / 6, 4)] {
            let mut all = buffers(3, begun).unwrap();
            assert_eq!((all.len(), all[0].from.len(), all[0].to.len()), (threads, size, size));
            assert_eq!(all[0].time(NEAR, 4 * PIECE, PIECE, false).len(), pieces);
        }
        let rates = measure(3, late).unwrap().far;
        assert!(rates.one > 0.0 && rates.one.is_finite() && rates.all > 0.0 && rates.all.is_finite());
    }

    #[test]
    fn a_machine_copies_something() {
        let (plain, rows) = (seconds(1 << 20, 1, 1).unwrap(), seconds(1 << 20, 1 << 14, 1).unwrap());
        assert!(plain > 0.0 && rows > 0.0 && rows.is_finite());
    }
}
