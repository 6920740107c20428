// SPDX-License-Identifier: Apache-2.0
//! Costs that runs have shown, and those that are assumed, compared with measurements.

use super::*;

/// A transfer whose spans cost next to nothing.
fn few_spans(bytes: u64, sessions: u64) -> ServedSize {
    ServedSize { bytes, sessions, spans: 0, places: 0 }
}

fn run(descriptors: u64, transferred: u64, per_descriptor: f64, per_byte: f64) -> Sample {
    let seconds = descriptors as f64 * per_descriptor + transferred as f64 * per_byte;
    Sample { descriptors, transferred, seconds, ..Sample::default() }
}

#[test]
fn without_runs_the_assumed_costs_hold() {
    let rates = RequestRates::default();
    assert_eq!(rates.bytes_per_descriptor(), 13_333);
    assert!((rates.direct(500, 5_000_000) - 2e-3).abs() < 1e-9);
}

#[test]
fn without_runs_vmm_memory_is_rather_served() {
    let direct = RequestRates::assuming(Between::ThroughHost);
    let served = RequestRates::default();
    for bytes in [1 << 20, 1 << 30] {
        assert!(served.served(&few_spans(bytes, 1)) < 0.3 * direct.direct(1, bytes), "{bytes}");
    }
}

/// Rates measured on an H200: a descriptor takes 8 us, a served byte 1/13 ns.
#[test]
fn small_blocks_of_gpus_are_rather_served_and_large_ones_are_not() {
    let rates = RequestRates::assuming(Between::Gpus);
    let bytes = 32 << 20;
    for (block, is_better) in [(4 << 10, true), (64 << 10, true), (1 << 20, false)] {
        let spans = bytes / block;
        let size = ServedSize { spans, places: spans, ..few_spans(bytes, 1) };
        assert_eq!(rates.served(&size) < rates.direct(bytes / block, bytes), is_better, "{block}");
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
    assert!((12_000..14_667).contains(&found), "{found}");
    let seconds = rates.direct(1000, 0);
    assert!((9e-3..11e-3).contains(&seconds), "{seconds}");
}

#[test]
fn short_runs_and_odd_durations_leave_costs_positive() {
    let rates = RequestRates::default();
    rates.add(&run(1, 1, 1.0, 1.0));
    assert_eq!(rates.bytes_per_descriptor(), 13_333);
    for seconds in [0.0, 1e3] {
        rates.add(&Sample { descriptors: 1 << 20, transferred: 1 << 30, seconds, ..Sample::default() });
        assert!(rates.direct(1, 0) > 0.0 && rates.direct(0, 1) > 0.0);
    }
}

#[test]
fn served_runs_estimate_the_next_one() {
    let rates = RequestRates::default();
    let assumed = rates.served(&few_spans(100 << 20, 1));
    rates.add_served(&few_spans(1, 1), 10.0);
    assert_eq!(rates.served(&few_spans(100 << 20, 1)), assumed, "a run of a byte says nothing");
    for _ in 0..20 {
        rates.add_served(&few_spans(100 << 20, 1), 3.0 * assumed);
    }
    let found = rates.served(&few_spans(200 << 20, 1));
    assert!((5.0 * assumed..7.0 * assumed).contains(&found), "{found}");
}

/// A million blocks of 512 bytes over a slow network: their places cost more than their bytes are assumed to.
#[test]
fn served_runs_of_short_blocks_show_that_bytes_are_slow() {
    let (rates, blocks) = (RequestRates::default(), 1_000_000);
    let size = ServedSize { spans: blocks, places: blocks, ..few_spans(512 * blocks, 46) };
    let assumed = rates.served(&size);
    rates.add_served(&size, 1.1 * assumed);
    assert_eq!(rates.served(&size), assumed, "the usual duration says nothing of the bytes");
    rates.add_served(&size, 4.3);
    let found = rates.served(&size);
    assert!((4.2..4.4).contains(&found), "{found}");
}

/// Blocks in so many spans that they need several requests: each takes a time that the bytes do not explain.
#[test]
fn each_session_of_a_served_run_takes_a_time_of_its_own() {
    let rates = RequestRates::default();
    let one = rates.served(&few_spans(1 << 20, 1));
    let more = rates.served(&few_spans(1 << 20, 11)) - one;
    assert!((more - 10.0 * SECONDS_PER_SESSION).abs() < 1e-9, "{more}");
    for _ in 0..20 {
        rates.add_served(&few_spans(100 << 20, 10), 10.0 * SECONDS_PER_SESSION + 50e-3);
    }
    let found = rates.served(&few_spans(100 << 20, 1)) - SECONDS_PER_SESSION;
    assert!((found - 50e-3).abs() < 1e-6, "{found}");
}

#[test]
fn rates_are_slow_if_bytes_are() {
    assert!(RequestRates::assuming(Between::ThroughHost).are_slow());
    assert!(!RequestRates::assuming(Between::Gpus).are_slow());
    let rates = RequestRates::default();
    assert!(!rates.are_slow());
    rates.add(&run(512, 32 << 20, 2e-6, 1.0 / 3e9));
    assert!(!rates.are_slow(), "as fast as host memory");
    for _ in 0..10 {
        rates.add(&run(512, 32 << 20, 2e-6, 1.0 / 0.4e9));
    }
    assert!(rates.are_slow());
}

#[test]
fn a_staged_transfer_takes_as_long_as_its_slower_part() {
    let rates = RequestRates::default();
    let estimate = Estimate { transferred: 100 << 20, chunks: 100, ..Estimate::default() };
    let [both, first_chunk] = rates.staged(&estimate, 100 << 20);
    let [half, _] = rates.staged(&estimate, 50 << 20);
    assert!(half < both && both < 1.2 * half, "{half} {both}");
    assert!((0.5..1.0).contains(&(100.0 * first_chunk / both)), "{first_chunk} {both}");
}

/// Microseconds of the fastest of 31 runs between two processes over shared memory, which no constant was fitted to: number and
/// bytes of scattered blocks, served by the owner, and through an arena here.
const MEASURED: [(u64, u64, f64, f64); 16] = [
    (785, 3072, 2069.0, 1398.0),
    (422, 6144, 2128.0, 1258.0),
    (3055, 6144, 8675.0, 5763.0),
    (290, 32, 265.0, 124.0),
    (37328, 2048, 357_714.0, 202_654.0),
    (887, 384, 544.0, 328.0),
    (601, 2048, 836.0, 448.0),
    (4491, 3072, 6897.0, 4205.0),
    (3096, 192, 853.0, 452.0),
    (758, 192, 305.0, 189.0),
    (29519, 3072, 33996.0, 27886.0),
    (1882, 32, 448.0, 172.0),
    (9517, 128, 2872.0, 1294.0),
    (499, 6144, 5438.0, 1732.0),
    (255, 32, 172.0, 74.0),
    (22852, 512, 10980.0, 6221.0),
];

/// Every second block is moved, so a read through the arena has twice the bytes.
#[test]
fn estimates_without_runs_compare_the_methods_for_scattered_blocks() {
    let rates = RequestRates::default();
    let regret = |(spans, size, served, staged): (u64, u64, f64, f64)| {
        let (bytes, transferred) = (spans * size, 2 * spans * size);
        let chunks = transferred.div_ceil(2 << 20);
        let through_arena = Estimate { descriptors: chunks, transferred, chunks, places: spans };
        let asked = ServedSize { bytes, sessions: spans.div_ceil(21_785), spans, places: spans };
        let is_served = rates.served(&asked) < rates.staged(&through_arena, bytes)[0];
        assert!(!is_served || size >= 1024, "{spans} blocks of {size} bytes");
        let taken = if is_served { served } else { staged };
        taken / served.min(staged)
    };
    let mean = MEASURED.map(regret).iter().sum::<f64>() / MEASURED.len() as f64;
    assert!(mean < 1.05, "{mean}");
}
