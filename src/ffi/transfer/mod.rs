// SPDX-License-Identifier: Apache-2.0
//! Transfers of blocks between two layouts.

pub mod path;
pub mod progress;
pub mod request;
pub mod run;
