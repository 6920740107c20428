// SPDX-License-Identifier: Apache-2.0
//! Copies by a GPU: launches of kernels, calls of the driver, and the state of a device that all of them share.

pub mod bench;
pub mod checker;
pub(crate) mod chunking;
pub mod copies_in_flight;
pub(crate) mod prepared_runs;
pub mod device;
pub(crate) mod direction;
pub(crate) mod division;
pub(crate) mod driver_copies;
pub(crate) mod gather;
pub(crate) mod host_order;
pub(crate) mod kernel_copies;
pub(crate) mod launch;
pub(crate) mod row_launches;
pub(crate) mod page_locks;
pub mod row_copier;
pub mod rates;
pub(crate) mod rows;
pub(crate) mod gpu_sides;
pub(crate) mod staged_axes;
pub(crate) mod transpose;
pub(crate) mod unit_launches;

pub use copies_in_flight::CopiesInFlight;
pub use device::descriptor_ring::DescriptorSlot;
pub use device::device_state::DeviceState;
pub use device::resource::Resource;
pub use device::run_resources::RunResources;
pub(crate) use direction::CopyDirection;
pub(crate) use gpu_sides::CudaSides;
pub use row_copier::RowCopier;
