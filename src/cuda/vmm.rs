// SPDX-License-Identifier: Apache-2.0
//! The driver's virtual memory management: addresses are reserved, physical memory is created or imported, and a mapping
//! joins the two. None of it needs a current context.

mod foreign;
mod handles;
mod mapping;
mod memory;
mod properties;
mod range;
mod shareable;
mod retained;

pub use foreign::describe;
pub use handles::{can_export, try_export};
pub use mapping::{DeviceAccess, DeviceMapping};
pub use memory::PhysicalMemory;
pub use properties::{AllocationProperties, Granularity, Location};
pub use range::AddressRange;
pub use retained::{RetainedRange, retain_range};
pub use shareable::{ExportedHandle, HandleType, Shareable};
