// SPDX-License-Identifier: Apache-2.0
//! Selects the method of one transfer: the cost model, and the comparison of all methods.
#![forbid(unsafe_code)]

pub mod access_time;
mod beside;
pub mod cost;
pub mod ctas;
pub mod row_costs;
pub mod comparison;

#[cfg(test)]
mod tests;
