// SPDX-License-Identifier: Apache-2.0
//! The CUDA driver's virtual memory management, step by step, for engines that do it themselves.

pub mod handles;
pub mod mapping;
pub mod memory;
pub mod range;
