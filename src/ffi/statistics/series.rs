// SPDX-License-Identifier: Apache-2.0
//! Lines of Prometheus's text format.

use std::fmt::{Display, Write};

use crate::base::{Result, ensure};

/// Types of metrics.
pub(super) const COUNTER: &str = "counter";
pub(super) const GAUGE: &str = "gauge";

/// Text of metrics, each with its lines together.
#[derive(Default)]
pub(super) struct Series {
    text: String,
    /// There was no memory for all lines.
    is_cut: bool,
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

    /// The same for labels of an object, and what follows them.
    #[inline(never)]
    pub fn labelled(&mut self, labels: &str, more: &str, value: u64) {
        let metric = self.metric;
        self.line(format_args!("{metric}{{{labels}{more}}} {value}"));
    }

    pub fn text(self) -> Result<String> {
        ensure!(!self.is_cut, OutOfMemory, "no memory for a text of more than {} bytes", self.text.len());
        Ok(self.text)
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if writeln!(self, "{line}").is_err() {
            self.is_cut = true;
        }
    }
}

/// The text grows with the objects of the caller.
impl Write for Series {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text.try_reserve(text.len()).map_err(|_| std::fmt::Error)?;
        self.text.push_str(text);
        Ok(())
    }
}
