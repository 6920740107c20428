// SPDX-License-Identifier: Apache-2.0
//! Copies between memory that this process can access: by the CPU, or by a GPU.

pub mod cuda;
pub mod host;
