// SPDX-License-Identifier: Apache-2.0
//! CUDA through the driver API: an engine brings its own runtime.

mod api;
mod buffer;
pub mod checksum;
mod codes;
mod compile;
pub mod context;
pub mod copy;
pub mod deferred;
pub mod device;
mod device_properties;
pub mod driver;
pub mod ending;
mod entry;
pub mod event;
pub mod exit;
pub mod ipc;
pub mod kernel;
pub mod memory;
pub mod module;
pub mod page_lock;
mod patience;
pub mod peer;
mod ptx;
pub mod quiet;
mod driver_structs;
pub mod stream;
pub mod vmm;

pub use buffer::DeviceBuffer;
pub use context::{Context, ContextIdentity, not_started};
pub use copy::{Batch, Copy, EngineLoad, SourceOrder};
pub use deferred::Deferred;
pub use device::Device;
pub use device_properties::DeviceProperties;
pub use ending::{is_fatal, is_over};
pub use event::Event;
pub use ipc::DevicePair;
pub use kernel::{Blocks, CopyKernel, KernelRun, Layer, Units};
pub use patience::Patience;
pub use quiet::Capture;
pub use stream::{Active, CallerStream, Stream, Wake};
