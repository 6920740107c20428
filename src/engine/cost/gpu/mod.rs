// SPDX-License-Identifier: Apache-2.0
//! What copies of a GPU cost.

pub mod access_time;
mod beside;
pub mod ctas;
pub mod kernel_access;
pub mod known;
pub mod model;
pub mod observed;
