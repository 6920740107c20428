// SPDX-License-Identifier: Apache-2.0
//! Lines of Prometheus's text format.

use std::fmt::{Display, Write};

/// Text of metrics, each with its lines together.
#[derive(Default)]
pub(super) struct Series {
    text: String,
    metric: &'static str,
}

impl Series {
    /// Begins a metric. Its name, type and meaning come before its values.
    #[inline(never)]
    pub fn begin(&mut self, metric: &'static str, kind: &str, meaning: &str) {
        self.metric = metric;
        self.line(format_args!("# HELP {metric} {meaning}"));
        self.line(format_args!("# TYPE {metric} {kind}"));
    }

    /// A metric with one value.
    pub fn single(&mut self, metric: &'static str, kind: &str, meaning: &str, value: &dyn Display) {
        self.begin(metric, kind, meaning);
        self.line(format_args!("{metric} {value}"));
    }

    /// A value of the metric that was begun. No label has a character that the format escapes.
    #[inline(never)]
    pub fn value(&mut self, suffix: &str, labels: &[(&str, &str)], value: &dyn Display) {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let (metric, labels) = (self.metric, labels.join(","));
        self.line(format_args!("{metric}{suffix}{{{labels}}} {value}"));
    }

    pub fn text(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A String takes any text.
        let _ = writeln!(self.text, "{line}");
    }
}
