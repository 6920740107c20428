// SPDX-License-Identifier: Apache-2.0
//! CUDA through the driver API: an engine brings its own runtime.

mod api;
pub mod context;
pub mod device;
pub mod driver;
pub mod host;
pub mod ipc;
pub mod memory;
mod stream;
pub mod vmm;

pub use context::Context;
pub use device::Device;
pub use driver::Driver;
pub use stream::Stream;
