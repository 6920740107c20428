// SPDX-License-Identifier: Apache-2.0
//! The CUDA driver's virtual memory management, call by call, for engines that manage memory themselves.

pub mod handles;
pub mod mapping;
pub mod memory;
pub mod range;
