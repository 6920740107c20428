// SPDX-License-Identifier: Apache-2.0
//! Copies by a GPU: launches of kernels, calls of the driver, and the state of a device that all of them share.

pub(crate) mod descriptors;
pub mod device;
pub(crate) mod direction;
pub(crate) mod driver;
pub(crate) mod gather;
pub(crate) mod host_order;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod listed;
pub(crate) mod page_locks;
pub mod row_copier;
pub(crate) mod rows;
pub(crate) mod sides;
pub(crate) mod staged_axes;
pub(crate) mod transpose;
