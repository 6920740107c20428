// SPDX-License-Identifier: Apache-2.0
//! The functions of the CUDA driver: devices, streams, copy rates, IPC handles, virtual memory management.

pub mod copy_rates;
pub mod device;
pub mod ipc;
pub mod pool;
pub mod stream;
pub mod vmm;
