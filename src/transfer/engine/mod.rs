// SPDX-License-Identifier: Apache-2.0
//! The engines: each moves blocks by one kind of path.

pub mod contexts;
pub mod cuda;
pub mod disk;
pub mod explain;
pub mod host;
pub mod nixl;
