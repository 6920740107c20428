// SPDX-License-Identifier: Apache-2.0
//! Layouts: where each block of a KV cache is located.

pub mod build;
pub mod checksum;
pub mod info;
