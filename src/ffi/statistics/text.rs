// SPDX-License-Identifier: Apache-2.0
//! The counters as text for Prometheus.

use super::counters::{current, kvmem_method_statistics, of_method, staging};
use super::objects;
use super::series::{COUNTER, GAUGE, Series};
use crate::base::Result;
use crate::copy::gpu::device::resource::WAITS;
use crate::ffi::common::guard::FAILED;
use crate::ffi::common::kind::{ALIVE, NAMES};
use crate::ffi::common::status;
use crate::ffi::transfer::method::METHODS;
use crate::run::counters as run_counters;
use crate::run::statistics::{BUCKETS, CLASSES, DIRECTION_LABELS, FIRST_BUCKET, METHOD_LABELS, SIZES};

/// In the order of the resources that runs wait for.
const GPU_RESOURCES: [&str; 4] = ["stream", "descriptor_slot", "staging_to_host", "staging_to_device"];

/// All metrics.
pub(super) fn all() -> Result<String> {
    let mut series = Series::default();
    let values = std::iter::once(None).chain(METHODS.iter().map(|(_, method)| Some(*method)));
    let methods: Vec<_> = METHOD_LABELS.into_iter().zip(values.map(of_method)).collect();
    add_runs(&mut series, &methods);
    add_latencies(&mut series, &methods);
    add_rest(&mut series);
    objects::add(&mut series)?;
    series.text()
}

pub(super) fn status_label(value: i32) -> String {
    status::name(value).trim_start_matches("KVMEM_STATUS_").to_ascii_lowercase()
}

type Method = (&'static str, kvmem_method_statistics);

fn add_runs(series: &mut Series, methods: &[Method]) {
    series.begin("kvmem_runs_total", COUNTER, "Runs of transfers and requests that have ended.");
    for (method, counted) in methods {
        for (direction, by_status) in DIRECTION_LABELS.iter().zip(&counted.runs) {
            for (value, runs) in (0..).zip(by_status).filter(|(_, runs)| **runs > 0) {
                let name = status_label(-value);
                let labels = [("method", *method), ("direction", direction), ("status", &name)];
                series.value("", &labels, runs);
            }
        }
    }
    series.begin("kvmem_bytes_total", COUNTER, "Bytes of the runs that have succeeded.");
    for (method, counted) in methods {
        let bytes = DIRECTION_LABELS.iter().zip(&counted.bytes);
        for (direction, bytes) in bytes.filter(|(_, bytes)| **bytes > 0) {
            series.value("", &[("method", *method), ("direction", direction)], bytes);
        }
    }
}

fn add_latencies(series: &mut Series, methods: &[Method]) {
    let meaning = "Time from submission to completion of the runs that have succeeded, by the upper limit of their bytes.";
    series.begin("kvmem_run_duration_seconds", "histogram", meaning);
    for (method, counted) in methods {
        for class in (0..CLASSES).filter(|class| counted.latencies[*class].iter().sum::<u64>() > 0) {
            let size = SIZES.get(class).map_or("+Inf".to_string(), u64::to_string);
            let labels = [("method", *method), ("max_bytes", &size)];
            let total = add_buckets(series, labels, &counted.latencies[class]);
            series.value("_sum", &labels, &seconds(counted.latency_sums_ns[class]));
            series.value("_count", &labels, &total);
        }
    }
}

/// Returns the number of runs in all buckets.
fn add_buckets(series: &mut Series, [method, size]: [(&str, &str); 2], counts: &[u64; BUCKETS]) -> u64 {
    let mut total = 0;
    for (bucket, count) in (0..).zip(counts) {
        total += count;
        let bound = match bucket {
            _ if bucket as usize == BUCKETS - 1 => "+Inf".to_string(),
            _ => seconds(1 << (FIRST_BUCKET + bucket)).to_string(),
        };
        series.value("_bucket", &[method, size, ("le", &bound)], &total);
    }
    total
}

fn add_rest(series: &mut Series) {
    let now = current();
    series.single(
        "kvmem_runs_in_flight",
        GAUGE,
        "Runs that have started and not ended.",
        &now.runs_in_flight,
    );
    series.begin("kvmem_region_bytes", GAUGE, "Bytes of all regions that are no views.");
    let tiers = [
        ("system", now.system_bytes),
        ("pinned", now.pinned_bytes),
        ("device", now.device_bytes),
        ("elastic", now.elastic_bytes),
        ("disk", now.disk_bytes),
        ("object", now.object_bytes),
        ("block", now.block_bytes),
    ];
    tiers.into_iter().for_each(|(tier, bytes)| series.value("", &[("tier", tier)], &bytes));
    let singles = [
        (
            "kvmem_elastic_committed_bytes",
            GAUGE,
            "Bytes of elastic regions that have memory.",
            now.elastic_committed_bytes,
        ),
        (
            "kvmem_mapped_bytes",
            GAUGE,
            "Bytes of regions of other processes that are mapped here.",
            now.mapped_bytes,
        ),
        (
            "kvmem_file_retries_total",
            COUNTER,
            "Reads and writes of files that were continued or repeated.",
            now.num_file_retries,
        ),
        (
            "kvmem_peer_leases",
            GAUGE,
            "Leases that layouts keep for peers that reach them by NIXL.",
            run_counters::PEER_LEASES.value(),
        ),
        (
            "kvmem_peer_leased_blocks",
            GAUGE,
            "Blocks of these leases; one that several have counts for each.",
            run_counters::PEER_LEASED_BLOCKS.value(),
        ),
        ("kvmem_registrations", GAUGE, "Registrations of regions with agents.", now.num_registrations),
        ("kvmem_store_hits_total", COUNTER, "Keys that gets of stores have found.", now.num_store_hits),
        (
            "kvmem_store_misses_total",
            COUNTER,
            "Keys of gets that were not found: the first that is not stored, and all after it.",
            now.num_store_misses,
        ),
        ("kvmem_store_evicted_total", COUNTER, "Blocks that stores have evicted.", now.num_store_evicted),
        (
            "kvmem_store_damaged_total",
            COUNTER,
            "Damaged blocks that stores have found.",
            now.num_store_damaged,
        ),
        (
            "kvmem_excess_bytes_total",
            COUNTER,
            "Bytes that were read from peers and discarded.",
            now.excess_bytes,
        ),
        (
            "kvmem_waits_elapsed_total",
            COUNTER,
            "Waits for a run, a completion or a message whose timeout has elapsed.",
            now.num_elapsed_waits,
        ),
        (
            "kvmem_peer_staging_waits_total",
            COUNTER,
            "Times that a run with a peer has begun to wait for staging memory.",
            now.num_peer_staging_waits,
        ),
    ];
    singles
        .into_iter()
        .for_each(|(metric, kind, meaning, value)| series.single(metric, kind, meaning, &value));
    series.begin("kvmem_staging_bytes", GAUGE, "Bytes of staging memory.");
    staging().into_iter().for_each(|(of, bytes)| series.value("", &[("of", of)], &bytes));
    let limit = match now.locked_bytes_limit {
        u64::MAX => "+Inf".to_string(),
        limit => limit.to_string(),
    };
    series.single("kvmem_locked_bytes_limit", GAUGE, "Bytes that the process may lock in memory.", &limit);
    let meaning = "Times that a transfer took another method, because this one could not be prepared.";
    series.begin("kvmem_fallbacks_total", COUNTER, meaning);
    for (method, by_status) in METHOD_LABELS.iter().skip(1).zip(&run_counters::FALLBACKS) {
        for (value, count) in (0..).zip(by_status).filter(|(_, count)| count.value() > 0) {
            let labels = [("method", *method), ("status", &status_label(-value))];
            series.value("", &labels, &count.value());
        }
    }
    series.begin(
        "kvmem_gpu_waits_total",
        COUNTER,
        "Times that a run has begun to wait for a resource of a GPU.",
    );
    for (resource, waits) in GPU_RESOURCES.iter().zip(&WAITS) {
        series.value("", &[("resource", resource)], &waits.value());
    }
    series.begin("kvmem_call_errors_total", COUNTER, "Calls that have failed.");
    for (value, failed) in (0..).zip(&FAILED).filter(|(_, failed)| failed.value() > 0) {
        series.value("", &[("status", &status_label(-value))], &failed.value());
    }
    series.begin("kvmem_handles", GAUGE, "Handles that were not destroyed.");
    for (name, alive) in NAMES.iter().zip(&ALIVE) {
        series.value("", &[("type", &name.replace(' ', "_"))], &alive.value());
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_methods_are_the_names_of_their_constants() {
        let source = include_str!("../transfer/method.rs");
        for (label, (value, _)) in METHOD_LABELS.iter().skip(1).zip(METHODS) {
            let constant = format!("pub const KVMEM_METHOD_{}: u32 = {value};", label.to_uppercase());
            assert!(source.contains(&constant), "{constant}");
        }
        for (value, direction) in DIRECTION_LABELS.iter().enumerate() {
            let constant = format!("pub const KVMEM_DIRECTION_{}: u32 = {value};", direction.to_uppercase());
            assert!(include_str!("counters.rs").contains(&constant), "{constant}");
        }
    }
}
