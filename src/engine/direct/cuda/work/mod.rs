// SPDX-License-Identifier: Apache-2.0
//! Prepared work of a transfer: copies by the kernel, by the driver, or by both through staging memory.

pub mod method_limits;
pub mod sequence;
pub mod staged;
pub mod copy_task;
