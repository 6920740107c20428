// SPDX-License-Identifier: Apache-2.0
//! What has happened to each agent, layout, queue and store, as text for Prometheus.

use super::series::{COUNTER, GAUGE, Series};
use crate::base::Result;
use crate::base::reported::{BYTES, HELD, KINDS, ROW, ReportedKind, listing};
use crate::run::statistics::{DIRECTION_LABELS, FIRST_AGENT_DIRECTION};
use crate::run::tallies::OUTCOMES;
use crate::store::FIRST_COUNT;

/// As those of handles are called.
const KIND_LABELS: [&str; KINDS] = ["agent", "layout", "queue", "store"];

struct Metric {
    of: ReportedKind,
    name: &'static str,
    kind: &'static str,
    meaning: &'static str,
    series: Values,
}

/// The series of an object, and the indices of their values.
enum Values {
    One(usize),
    /// One for each value of a label, from an index on.
    Of(&'static str, &'static [&'static str], usize),
    /// For each row, which a label names, those of its runs, or of its bytes. They appear with the first run.
    Runs(&'static str, &'static [&'static str]),
    Bytes(&'static str, &'static [&'static str]),
}

const SIDES: &[&str] = &["source", "destination"];
const OPERATIONS: &[&str] = &["get", "put"];
const AGENT_DIRECTIONS: &[&str] = DIRECTION_LABELS.split_at(FIRST_AGENT_DIRECTION).1;

const METRICS: [Metric; 11] = [
    Metric {
        of: ReportedKind::Agent,
        name: "kvmem_agent_runs_total",
        kind: COUNTER,
        meaning: "Runs that have ended whose bytes an agent moves.",
        series: Values::Runs("direction", AGENT_DIRECTIONS),
    },
    Metric {
        of: ReportedKind::Agent,
        name: "kvmem_agent_bytes_total",
        kind: COUNTER,
        meaning: "Bytes of the runs of an agent that have succeeded.",
        series: Values::Bytes("direction", AGENT_DIRECTIONS),
    },
    Metric {
        of: ReportedKind::Agent,
        name: "kvmem_agent_registrations",
        kind: GAUGE,
        meaning: "Registrations of regions with an agent.",
        series: Values::One(HELD),
    },
    Metric {
        of: ReportedKind::Layout,
        name: "kvmem_layout_runs_total",
        kind: COUNTER,
        meaning: "Runs from a layout or to it that have ended.",
        series: Values::Runs("side", SIDES),
    },
    Metric {
        of: ReportedKind::Layout,
        name: "kvmem_layout_bytes_total",
        kind: COUNTER,
        meaning: "Bytes of the runs from a layout or to it that have succeeded.",
        series: Values::Bytes("side", SIDES),
    },
    Metric {
        of: ReportedKind::Queue,
        name: "kvmem_queue_taken_total",
        kind: COUNTER,
        meaning: "Completions that were taken from a queue.",
        series: Values::One(0),
    },
    Metric {
        of: ReportedKind::Queue,
        name: "kvmem_queue_completions",
        kind: GAUGE,
        meaning: "Completions that are in a queue.",
        series: Values::One(1),
    },
    Metric {
        of: ReportedKind::Store,
        name: "kvmem_store_runs_total",
        kind: COUNTER,
        meaning: "Runs of gets and puts of a store that have ended.",
        series: Values::Runs("operation", OPERATIONS),
    },
    Metric {
        of: ReportedKind::Store,
        name: "kvmem_store_bytes_total",
        kind: COUNTER,
        meaning: "Bytes of the runs of a store that have succeeded.",
        series: Values::Bytes("operation", OPERATIONS),
    },
    Metric {
        of: ReportedKind::Store,
        name: "kvmem_store_events_total",
        kind: COUNTER,
        meaning: "Keys and blocks of a store, as in the metrics of all stores.",
        series: Values::Of("event", &["hit", "miss", "evicted", "damaged"], FIRST_COUNT),
    },
    Metric {
        of: ReportedKind::Store,
        name: "kvmem_store_slots",
        kind: GAUGE,
        meaning: "Slots of a store.",
        series: Values::Of("state", &["stored", "retired", "free"], FIRST_COUNT + 4),
    },
];

pub(super) fn add(series: &mut Series) -> Result<()> {
    let listing = listing()?;
    for metric in &METRICS {
        series.begin(metric.name, metric.kind, metric.meaning);
        for report in listing.reports.iter().filter(|report| report.kind == metric.of) {
            add_object(series, &report.labels, &metric.series, &report.values);
        }
    }
    series.begin("kvmem_unlisted_objects", GAUGE, "Objects without series, because there are too many.");
    for (kind, count) in KIND_LABELS.iter().zip(listing.left_out) {
        series.value("", &[("type", kind)], &count);
    }
    Ok(())
}

fn add_object(series: &mut Series, labels: &str, metric: &Values, values: &[u64]) {
    match *metric {
        Values::One(at) => series.labelled(labels, "", values[at]),
        Values::Of(label, names, first) => {
            for (name, value) in names.iter().zip(&values[first..]) {
                series.labelled(labels, &format!(",{label}=\"{name}\""), *value);
            }
        }
        Values::Runs(label, names) => {
            for (name, row) in names.iter().zip(values.chunks(ROW)) {
                for (outcome, count) in OUTCOMES.iter().zip(row).filter(|(_, count)| **count > 0) {
                    series.labelled(labels, &format!(",{label}=\"{name}\",outcome=\"{outcome}\""), *count);
                }
            }
        }
        Values::Bytes(label, names) => {
            for (name, row) in names.iter().zip(values.chunks(ROW)).filter(|(_, row)| row[0] > 0) {
                series.labelled(labels, &format!(",{label}=\"{name}\""), row[BYTES]);
            }
        }
    }
}
