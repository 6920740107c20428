// SPDX-License-Identifier: Apache-2.0
//! Prepared work of a transfer: copies by the kernel, by the driver, or by both through staging memory.

pub mod access;
mod chunking;
mod descriptors;
pub mod division;
pub mod driver;
mod gather;
mod host_order;
pub mod kernel;
pub mod limits;
pub mod quick;
pub mod sequence;
pub mod staged;
mod staged_axes;
pub mod task;
