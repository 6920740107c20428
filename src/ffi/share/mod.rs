// SPDX-License-Identifier: Apache-2.0
//! Shares: a region or layout for another process, and the broker that serves them.

pub mod broker;
pub mod create;
pub mod open;
pub mod socket;
