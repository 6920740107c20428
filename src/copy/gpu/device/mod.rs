// SPDX-License-Identifier: Apache-2.0
//! The state of one device that all transfers on it share, and the resources that their runs take from it.

pub mod descriptor_ring;
pub mod resource;
pub mod pool;
pub mod run_resources;
pub mod staging;
pub mod device_state;
pub mod run_counter;
