// SPDX-License-Identifier: Apache-2.0
//! What transfers cost, by method and link.
#![forbid(unsafe_code)]

pub mod gpu;
pub mod history;
pub mod host;
pub mod requests;
