// SPDX-License-Identifier: Apache-2.0
//! What requests to a peer cost: a time for each descriptor, and a time for each byte. Both are measured by the runs of this
//! process, and assumed before the first. Also the rate at which rows are copied between an arena and local memory.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use crate::layout::{Layout, Memory};
use crate::process::PerProcess;
use crate::sync::Mutex;

/// Assumed before the first run: measured with UCX and shared memory.
const SECONDS_PER_DESCRIPTOR: f64 = 2e-6;
const SECONDS_PER_BYTE: f64 = 1.0 / 5e9;
/// The same if a side is VMM memory, which UCX moves through the host, measured on an H200.
const SECONDS_PER_VMM_BYTE: f64 = 1.0 / 0.4e9;
/// Rows of the host engine.
const SECONDS_PER_COPIED_BYTE: f64 = 1.0 / 5e9;
/// What a chunk costs besides its descriptors and bytes: creating, posting and releasing its request, and waking the thread
/// that copies it.
const SECONDS_PER_CHUNK: f64 = 30e-6;
/// What a served transfer takes besides its bytes: until the owner has found the request.
const SECONDS_PER_SESSION: f64 = 300e-6;
/// Owner and requester work at the same time.
const SECONDS_PER_SERVED_BYTE: f64 = 1.0 / 4e9;
/// Shorter runs say more about latency.
const LEAST_SECONDS: f64 = 1e-3;
/// The weight of earlier runs after each later one.
const KEPT: f64 = 0.8;
/// The weight of the assumption, which remains for what no run has shown: runs of few descriptors do not tell their cost.
const ASSUMED: f64 = 0.05;

/// What a run has transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Descriptors of its requests.
    pub descriptors: u64,
    /// Bytes of its requests.
    pub transferred: u64,
    /// Seconds with a request in flight.
    pub seconds: f64,
    /// Bytes that were copied between the arena and local memory.
    pub copied: u64,
    /// Seconds of these copies.
    pub copying: f64,
}

/// What a transfer through an arena takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub descriptors: u64,
    /// Bytes between the peer and the arena.
    pub transferred: u64,
    /// Requests.
    pub chunks: u64,
}

impl Estimate {
    /// The same for so many times the bytes.
    pub fn scaled(self, factor: f64) -> Self {
        let scale = |count: u64| (count as f64 * factor) as u64;
        Self {
            descriptors: scale(self.descriptors),
            transferred: scale(self.transferred),
            chunks: scale(self.chunks),
        }
    }
}

/// The rates that the paths to a peer depend on.
pub struct Rates {
    /// Of requests between the layouts.
    pub direct: Arc<RequestRates>,
    /// Of requests between the peer's layout and an arena of this process.
    pub staged: Arc<RequestRates>,
    /// Of requests to an arena of the owner, and of what it serves.
    pub served: Arc<RequestRates>,
    /// Requests between the layouts are slow, however few there are.
    pub is_slow: bool,
}

impl Rates {
    /// The rates of reads from or writes to the peer of a remote layout.
    pub fn of(local: &Layout, remote: &Layout, reads: bool) -> Self {
        let is_slow = local.is_elastic() || remote.is_elastic();
        let of = |is_vmm| RequestRates::of(remote, reads, is_vmm);
        Self { direct: of(is_slow), staged: of(remote.is_elastic()), served: of(false), is_slow }
    }
}

/// The rates of requests to one peer in one direction.
#[derive(Debug, Default)]
pub struct RequestRates(Mutex<Fit>);

/// Sums for a fit of two factors to the assumed costs: of descriptors and of bytes. Runs are weighted equally, whatever their
/// size, by dividing each by its assumed duration.
#[derive(Clone, Copy, Debug)]
struct Fit {
    /// Assumed before the first run.
    per_byte: f64,
    /// Sums of products: descriptors squared, both, bytes squared.
    products: [f64; 3],
    /// Sums of products with the duration.
    durations: [f64; 2],
    copied: f64,
    copying: f64,
    /// Bytes that were served, and the seconds beyond those of a session.
    served: f64,
    serving: f64,
}

impl Default for Fit {
    fn default() -> Self {
        Self::assuming(SECONDS_PER_BYTE)
    }
}

impl Fit {
    fn assuming(per_byte: f64) -> Self {
        let (products, durations) = ([0.0; 3], [0.0; 2]);
        Self { per_byte, products, durations, copied: 0.0, copying: 0.0, served: 0.0, serving: 0.0 }
    }

    fn add(&mut self, sample: &Sample) {
        if sample.copied > 0 {
            self.copied = KEPT * self.copied + sample.copied as f64;
            self.copying = KEPT * self.copying + sample.copying;
        }
        let assumed =
            [sample.descriptors as f64 * SECONDS_PER_DESCRIPTOR, sample.transferred as f64 * self.per_byte];
        let all = assumed[0] + assumed[1];
        if all < LEAST_SECONDS {
            return;
        }
        let [of_descriptors, of_bytes] = assumed.map(|part| part / all);
        let factor = sample.seconds / all;
        let products = [of_descriptors * of_descriptors, of_descriptors * of_bytes, of_bytes * of_bytes];
        let durations = [of_descriptors * factor, of_bytes * factor];
        for (sum, product) in self.products.iter_mut().zip(products) {
            *sum = KEPT * *sum + product;
        }
        for (sum, product) in self.durations.iter_mut().zip(durations) {
            *sum = KEPT * *sum + product;
        }
    }

    /// The factors of descriptors and of bytes.
    fn factors(&self) -> [f64; 2] {
        let [a, b, c] = [self.products[0] + ASSUMED, self.products[1], self.products[2] + ASSUMED];
        let [u, v] = self.durations.map(|sum| sum + ASSUMED);
        let determinant = a * c - b * b;
        [(u * c - v * b) / determinant, (v * a - u * b) / determinant].map(|factor| factor.clamp(0.02, 50.0))
    }

    fn seconds(&self, descriptors: u64, bytes: u64) -> f64 {
        let [of_descriptors, of_bytes] = self.factors();
        of_descriptors * SECONDS_PER_DESCRIPTOR * descriptors as f64 + of_bytes * self.per_byte * bytes as f64
    }

    fn seconds_to_copy(&self, bytes: u64) -> f64 {
        let per_byte = if self.copying > 0.0 { self.copying / self.copied } else { SECONDS_PER_COPIED_BYTE };
        per_byte * bytes as f64
    }
}

impl RequestRates {
    fn of(remote: &Layout, reads: bool, is_vmm: bool) -> Arc<Self> {
        static RATES: PerProcess<Mutex<HashMap<Key, Arc<RequestRates>>>> = PerProcess::new();
        let peer = match remote.memory() {
            Memory::Remote(memory) => memory.peer.name().to_string(),
            Memory::Local(_) => String::new(),
        };
        let mut rates = RATES.get(Mutex::default).lock();
        if rates.len() > MOST_ENTRIES {
            rates.retain(|_, rates| Arc::strong_count(rates) > 1);
        }
        let new =
            || Self(Mutex::new(Fit::assuming(if is_vmm { SECONDS_PER_VMM_BYTE } else { SECONDS_PER_BYTE })));
        let key = (peer, remote.memory_type() as u32, reads, is_vmm);
        rates.entry(key).or_insert_with(|| Arc::new(new())).clone()
    }

    /// Adds a served run.
    pub fn add_served(&self, bytes: u64, seconds: f64) {
        let mut fit = self.0.lock();
        // Of short runs the time of the session is the most.
        let serving = (seconds - SECONDS_PER_SESSION).max(0.1 * seconds);
        if bytes as f64 * SECONDS_PER_SERVED_BYTE >= SECONDS_PER_SESSION {
            fit.served = KEPT * fit.served + bytes as f64;
            fit.serving = KEPT * fit.serving + serving;
        }
    }

    /// Seconds of a served transfer.
    pub fn served(&self, bytes: u64) -> f64 {
        let fit = *self.0.lock();
        let per_byte = if fit.served > 0.0 { fit.serving / fit.served } else { SECONDS_PER_SERVED_BYTE };
        SECONDS_PER_SESSION + per_byte * bytes as f64
    }

    /// Adds a run.
    pub fn add(&self, sample: &Sample) {
        self.0.lock().add(sample);
    }

    /// The bytes that take as long as a descriptor.
    pub fn bytes_per_descriptor(&self) -> u64 {
        let fit = *self.0.lock();
        (fit.seconds(1, 0) / fit.seconds(0, 1)) as u64
    }

    /// Seconds of a transfer with a descriptor for each span.
    pub fn direct(&self, descriptors: u64, bytes: u64) -> f64 {
        self.0.lock().seconds(descriptors, bytes)
    }

    /// Seconds of a transfer of `bytes` through an arena: the slower of requests and copies, and the one chunk for which the
    /// other waits.
    pub fn staged(&self, estimate: &Estimate, bytes: u64) -> f64 {
        let fit = *self.0.lock();
        let requests = fit.seconds(estimate.descriptors, estimate.transferred);
        let copies = fit.seconds_to_copy(bytes);
        let alone = requests.min(copies) / estimate.chunks.max(1) as f64;
        requests.max(copies) + alone + SECONDS_PER_CHUNK * estimate.chunks as f64
    }
}

/// A peer, its memory type, the direction, and whether a side is VMM memory.
type Key = (String, u32, bool, bool);

/// If there are more entries than this, entries that no transfer uses are dropped.
const MOST_ENTRIES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(descriptors: u64, transferred: u64, per_descriptor: f64, per_byte: f64) -> Sample {
        let seconds = descriptors as f64 * per_descriptor + transferred as f64 * per_byte;
        Sample { descriptors, transferred, seconds, ..Sample::default() }
    }

    #[test]
    fn without_runs_the_assumed_costs_hold() {
        let rates = RequestRates::default();
        assert_eq!(rates.bytes_per_descriptor(), 10_000);
        assert!((rates.direct(500, 5_000_000) - 2e-3).abs() < 1e-9);
    }

    #[test]
    fn without_runs_vmm_memory_is_rather_served() {
        let direct = RequestRates(Mutex::new(Fit::assuming(SECONDS_PER_VMM_BYTE)));
        let served = RequestRates::default();
        for bytes in [1 << 20, 1 << 30] {
            assert!(served.served(bytes) < 0.3 * direct.direct(1, bytes), "{bytes}");
        }
    }

    #[test]
    fn both_costs_are_found_by_runs_of_different_kinds() {
        let rates = RequestRates::default();
        for _ in 0..30 {
            rates.add(&run(100_000, 1 << 20, 10e-6, 1e-9));
            rates.add(&run(10, 1 << 30, 10e-6, 1e-9));
        }
        let found = rates.bytes_per_descriptor();
        assert!((9_000..11_000).contains(&found), "{found}");
        let seconds = rates.direct(1000, 0);
        assert!((9e-3..11e-3).contains(&seconds), "{seconds}");
    }

    #[test]
    fn short_runs_and_odd_durations_leave_costs_positive() {
        let rates = RequestRates::default();
        rates.add(&run(1, 1, 1.0, 1.0));
        assert_eq!(rates.bytes_per_descriptor(), 10_000);
        for seconds in [0.0, 1e3] {
            rates.add(&Sample { descriptors: 1 << 20, transferred: 1 << 30, seconds, ..Sample::default() });
            assert!(rates.direct(1, 0) > 0.0 && rates.direct(0, 1) > 0.0);
        }
    }

    #[test]
    fn served_runs_tell_what_the_next_one_takes() {
        let rates = RequestRates::default();
        let assumed = rates.served(100 << 20);
        rates.add_served(1, 10.0);
        assert_eq!(rates.served(100 << 20), assumed, "a run of a byte says nothing");
        for _ in 0..20 {
            rates.add_served(100 << 20, 3.0 * assumed);
        }
        let found = rates.served(200 << 20);
        assert!((5.0 * assumed..7.0 * assumed).contains(&found), "{found}");
    }

    #[test]
    fn a_staged_transfer_takes_as_long_as_its_slower_part() {
        let rates = RequestRates::default();
        let estimate = Estimate { descriptors: 0, transferred: 100 << 20, chunks: 100 };
        let both = rates.staged(&estimate, 100 << 20);
        let half = rates.staged(&estimate, 50 << 20);
        assert!(half < both && both < 1.2 * half, "{half} {both}");
    }
}
