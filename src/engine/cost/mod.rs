// SPDX-License-Identifier: Apache-2.0
//! What transfers cost: the one model by which all engines estimate durations and choose a method.
//!
//! **What is estimated**: the seconds from the submission of a run to its end, for each method between two kinds of memory
//! (link). An estimate is a sum: a latency, a time per span, and a time per byte. Spans are what the method handles one by one: copies of a
//! batch, rows of a kernel, descriptors of NIXL, chunks of staging memory. Work that overlaps counts as its longest part. Units are
//! seconds, bytes, and bytes per second; only texts have others.
//!
//! **Where a constant comes from**, by the machine that it depends on:
//! - *known*: the same on each machine, as far as it was measured. A `const` beside its use, with what it was fitted to. Throughputs of
//!   files, objects and peers are known by their order of magnitude only (`history`, `requests`).
//! - *measured*: differs between machines, and a short measurement finds it: the rates of GPUs and of pairs (`copy::gpu::rates`), which a thread
//!   measures at their first use and again after a failure, and the rates of host memory (`copy::host::rates`). Creating a transfer waits at most
//!   30 ms for the thread: known rates replace those that are missing.
//! - *learned*: changes while the process runs, or no measurement would be cheap. Each run adds its duration to a
//!   [`Learned`](crate::run::learned::Learned), a factor for what was assumed: of the CPU time of batches, of descriptors and bytes of
//!   requests, of bytes that an owner serves, of all runs with a file or an object. It is the only type that learns.
//!
//! **A busy GPU**: kernels of kvmem wait for large kernels of the program, and the copy engines do not. One learned number, from 0 to 1, says
//! how far runs with kernels took the longer of two estimates, alone and beside large kernels; estimates are between the two by this number. Up to a fifth
//! counts as idle: delays of a host look alike.
//!
//! **A CPU with two speeds**: submitting a copy takes a third more or less than on average, for some tenths of a second each. The estimate of a
//! batch or a staged copy is the mean over both, which is longer where bytes and CPU take about as long.
//!
//! **The choice**: each engine lists a `Candidate` per method, with its estimate or the reason why it is not possible, and
//! `outcome::best` takes one of them. Other costs than the duration are added in seconds: the CPU time of short transfers, and the doubt about
//! estimates of methods through staging memory. Methods without estimates (files, objects) have a fixed order. `explain` shows all candidates.
//! A run by layers takes the method of its first layer; a graph takes the best method that can be captured.
//!
//! `gpu::model::recorded_points` replays recorded measurements, and fails if a change of the model chooses worse.

pub mod gpu;
pub mod history;
pub mod outcome;
pub mod requests;
