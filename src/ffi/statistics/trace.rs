// SPDX-License-Identifier: Apache-2.0
//! The last runs in the trace format of Chrome: a JSON object with one event per run, and one inside it per phase.
//!
//! Runs of a method are on as many tracks as were in flight at one time, because events of one track must not overlap.

use std::fmt::Write;

use super::text::status_label;
use crate::base::sorting::sort_by_number;
use crate::base::{Result, lists};
use crate::run::phases::RunTimes;
use crate::run::statistics::{DIRECTION_LABELS, METHOD_LABELS, last_runs};
use crate::run::trace::EndedRun;

/// More than the text of one run with all phases.
const RUN_TEXT: usize = 1200;
/// The number of the first track of a method is its index times this.
const TRACKS: usize = 100_000;

pub(super) fn all() -> Result<String> {
    let (mut runs, left_out) = last_runs()?;
    sort_by_number(&mut runs, |run| run.times.started)?;
    let mut trace = Trace::new(left_out)?;
    let mut tracks = Tracks::default();
    for run in &runs {
        trace.reserve()?;
        let (track, is_new) = tracks.take(usize::from(run.method), &run.times);
        if is_new {
            trace.add_track(usize::from(run.method), track);
        }
        trace.add_run(run, track);
    }
    Ok(trace.finish())
}

/// Until when each track is in use, by method.
#[derive(Default)]
struct Tracks([Vec<u64>; METHOD_LABELS.len()]);

impl Tracks {
    /// The first track of the method that is not in use, and whether it was never used before.
    fn take(&mut self, method: usize, times: &RunTimes) -> (usize, bool) {
        let Some(ends) = self.0.get_mut(method) else { return (0, false) };
        match ends.iter_mut().zip(0..).find(|(end, _)| **end <= times.started) {
            Some((end, track)) => {
                *end = times.end();
                (track, false)
            }
            None => {
                ends.push(times.end());
                (ends.len() - 1, true)
            }
        }
    }
}

struct Trace {
    text: String,
    process: u32,
}

impl Trace {
    fn new(left_out: u64) -> Result<Self> {
        let mut trace = Self { text: String::new(), process: std::process::id() };
        trace.reserve()?;
        let process = trace.process;
        trace.write(format_args!(
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"clock\":\"CLOCK_MONOTONIC\",\"runs_left_out\":{left_out}}},\
             \"traceEvents\":[\n{{\"ph\":\"M\",\"pid\":{process},\"tid\":0,\"name\":\"process_name\",\
             \"args\":{{\"name\":\"kvmem\"}}}}"
        ));
        Ok(trace)
    }

    /// Memory for one run.
    fn reserve(&mut self) -> Result<()> {
        lists::reserved(self.text.try_reserve(RUN_TEXT), self.text.len() + RUN_TEXT, 1)
    }

    fn add_track(&mut self, method: usize, track: usize) {
        let (process, thread, name) = (self.process, method * TRACKS + track, METHOD_LABELS[method]);
        let number = track + 1;
        self.write(format_args!(
            ",\n{{\"ph\":\"M\",\"pid\":{process},\"tid\":{thread},\"name\":\"thread_name\",\
             \"args\":{{\"name\":\"{name} {number}\"}}}}"
        ));
    }

    fn add_run(&mut self, run: &EndedRun, track: usize) {
        let method = usize::from(run.method);
        let (thread, times) = (method * TRACKS + track, &run.times);
        let name = METHOD_LABELS.get(method).copied().unwrap_or_default();
        let direction = DIRECTION_LABELS.get(usize::from(run.direction)).copied().unwrap_or_default();
        self.begin_event("run", format_args!("{name} {direction}"), thread, (times.started, times.end()));
        let EndedRun { transfer, bytes, user_data, .. } = run;
        let status = status_label(run.status.map_or(0, |status| status as i32));
        // Numbers in JSON are exact up to 2^53.
        self.write(format_args!(
            ",\"args\":{{\"transfer\":{transfer},\"user_data\":\"{user_data:#x}\",\"bytes\":{bytes},\"status\":\"{status}\"}}}}"
        ));
        for (phase, since, until) in times.phases(run.status.is_some()) {
            self.begin_event("phase", format_args!("{}", phase.name()), thread, (since, until));
            self.write(format_args!("}}"));
        }
    }

    /// An event with all that it must have, from one time to another.
    fn begin_event(
        &mut self,
        category: &str,
        name: std::fmt::Arguments<'_>,
        thread: usize,
        (since, until): (u64, u64),
    ) {
        let (process, start, duration) = (self.process, micros(since), micros(until.saturating_sub(since)));
        self.write(format_args!(
            ",\n{{\"ph\":\"X\",\"pid\":{process},\"tid\":{thread},\"ts\":{start},\"dur\":{duration},\
             \"cat\":\"{category}\",\"name\":\"{name}\""
        ));
    }

    fn finish(mut self) -> String {
        self.write(format_args!("\n]}}\n"));
        self.text
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // A String takes any text.
        let _ = self.text.write_fmt(text);
    }
}

/// A time of the format, in microseconds without a loss.
fn micros(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_overlap_are_on_tracks_of_their_own() {
        let times = |started, duration| RunTimes { started, duration, ..RunTimes::default() };
        let mut tracks = Tracks::default();
        let taken = [(0, 10), (5, 3), (8, 1), (9, 20), (10, 1), (30, 1)]
            .map(|(started, duration)| tracks.take(1, &times(started, duration)));
        assert_eq!(taken, [(0, true), (1, true), (1, false), (1, false), (0, false), (0, false)]);
        assert_eq!(tracks.take(2, &times(10, 1)), (0, true));
    }

    #[test]
    fn the_text_of_a_run_is_within_its_limit() {
        let mut trace = Trace { text: String::new(), process: u32::MAX };
        let times = RunTimes { started: u64::MAX - 1, reached: [u64::MAX - 1; 4], duration: 1 };
        let (transfer, user_data, bytes, direction) = (u64::MAX, u64::MAX, u64::MAX, 0);
        let status = Some(crate::base::Status::InvalidArgument);
        let method = METHOD_LABELS.len() as u8 - 1;
        trace.add_track(usize::from(method), 99_999);
        trace.add_run(&EndedRun { transfer, user_data, bytes, method, direction, status, times }, 99_999);
        assert!(trace.text.len() <= RUN_TEXT, "{}", trace.text.len());
        assert_eq!(micros(1_002_003), "1002.003");
    }
}
