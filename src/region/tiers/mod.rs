// SPDX-License-Identifier: Apache-2.0
//! The memory of regions: one file for each kind.

mod adopted;
mod adopted_device;
mod adopted_file;
mod block_storage;
mod device;
mod disk;
mod elastic;
mod extent_properties;
mod imported_device;
mod mapped_device;
mod objects;
mod open_devices;
mod pinned;
mod system;

pub use adopted::AdoptedMemory;
pub use adopted_device::AdoptedDevice;
pub use adopted_file::AdoptedFileConfig;
pub use block_storage::{BlockStorage, BlockStorageConfig};
pub use device::{DeviceConfig, OwnedDevice};
pub use disk::{DirectIo, DiskConfig, DiskFile, Label, OpenMode};
pub use elastic::{
    COMMITTED, ElasticConfig, ElasticMemory, ExportedExtent, Growth, ImportedExtent, ImportedShape,
};
pub use extent_properties::granularity as extent_granularity;
pub use imported_device::{ImportedDevice, IpcConfig};
pub use mapped_device::{ImportedMapping, MappedDevice, MappedPart};
pub use objects::{ObjectConfig, Objects};
pub use open_devices::DeviceUsers;
pub use pinned::{PinnedConfig, PinnedMemory, Progress};
pub use system::{HugePages, SharedPart, SystemConfig, SystemMemory};
