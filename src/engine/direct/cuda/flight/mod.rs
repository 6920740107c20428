// SPDX-License-Identifier: Apache-2.0
//! Runs that the driver executes, from their submission to their end.

pub mod in_flight;
pub mod cuda_run;
mod run_cell;
pub mod watcher;
