// SPDX-License-Identifier: Apache-2.0
//! Prepared work of a transfer: copies by the kernel, by the driver, or by both through staging memory.

mod chunking;
mod descriptors;
pub mod division;
pub mod driver;
pub mod kernel;
pub mod sequence;
pub mod staged;
pub mod task;
