// SPDX-License-Identifier: Apache-2.0
//! The devices that mappings of VMM memory are open for. The driver takes far longer to open a mapping for a second device
//! than for the one that it is located on, and every device that can write to memory is one more that can damage it:
//! each device is added when it is first needed.

use std::sync::Arc;

use crate::base::sorting::few_distinct;
use crate::base::{Mutex, MutexGuard, Result};
use crate::cuda::Device;
use crate::cuda::vmm::{DeviceAccess, DeviceMapping};

/// Which devices of this process are to use memory of a device, besides the one that it is located on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceUsers {
    /// None until a transfer needs one.
    #[default]
    Owner,
    Device(i32),
    /// All that reach the memory.
    All,
}

/// The devices that some mappings are open for, all with the same access.
pub struct OpenDevices {
    access: DeviceAccess,
    /// Not locked while the driver is called: a thread that needs no other device does not wait.
    devices: Mutex<Vec<i32>>,
    /// Locked by the thread that opens them for another device.
    opening: Mutex<()>,
}

impl DeviceUsers {
    /// The device that will use plain memory, which can be opened for one device only; `None` for its own device.
    pub fn device(self) -> Option<i32> {
        match self {
            Self::Device(ordinal) => Some(ordinal),
            Self::Owner | Self::All => None,
        }
    }

    /// The devices that memory of device `owner` is to be open for, each once, in order.
    fn devices(self, owner: i32) -> Result<Vec<i32>> {
        let own = Device::get(owner)?;
        let mut devices = vec![owner];
        match self {
            Self::Owner => {}
            Self::Device(ordinal) => devices.push(ordinal),
            Self::All => {
                for ordinal in 0..own.driver().device_count() {
                    if Device::get(ordinal)?.can_access(&own)? {
                        devices.push(ordinal);
                    }
                }
            }
        }
        Ok(few_distinct(devices.into_iter()))
    }
}

impl OpenDevices {
    /// Memory of this process that is open for its own device alone.
    pub fn from_owner(owner: i32) -> Self {
        let devices = Mutex::new(vec![owner]);
        Self { access: DeviceAccess::ReadWrite, devices, opening: Mutex::default() }
    }

    /// Opens mappings of memory of device `owner` for that device and for `users`, in one call per run of neighbours.
    pub fn open(
        mappings: &[Arc<DeviceMapping>],
        owner: i32,
        users: DeviceUsers,
        writable: bool,
    ) -> Result<Self> {
        let reach = Self {
            access: if writable { DeviceAccess::ReadWrite } else { DeviceAccess::Read },
            devices: Mutex::default(),
            opening: Mutex::default(),
        };
        reach.extend(mappings, owner, users)?;
        Ok(reach)
    }

    /// Opens the same mappings for more devices. Devices that have access already cost nothing.
    pub fn extend(&self, mappings: &[Arc<DeviceMapping>], owner: i32, users: DeviceUsers) -> Result<()> {
        let mut missing = users.devices(owner)?;
        if self.have_all(&missing) {
            return Ok(());
        }
        // Another thread may be opening them for the same device.
        let _opening = self.opening.lock();
        missing.retain(|ordinal| !self.devices().contains(ordinal));
        if missing.is_empty() {
            return Ok(());
        }
        let accesses: Vec<_> = missing.iter().map(|ordinal| (*ordinal, self.access)).collect();
        DeviceMapping::set_access_of_all(mappings, &accesses)?;
        // After the call, so that a thread that finds a device in the set can use the memory.
        self.devices().extend(missing);
        Ok(())
    }

    /// Whether the mappings are open for all of these.
    pub fn covers(&self, owner: i32, users: DeviceUsers) -> Result<bool> {
        users.devices(owner).map(|wanted| self.have_all(&wanted))
    }

    pub fn accesses(&self) -> Vec<(i32, DeviceAccess)> {
        self.devices().iter().map(|ordinal| (*ordinal, self.access)).collect()
    }

    fn have_all(&self, wanted: &[i32]) -> bool {
        let open = self.devices();
        wanted.iter().all(|ordinal| open.contains(ordinal))
    }

    fn devices(&self) -> MutexGuard<'_, Vec<i32>> {
        self.devices.lock()
    }
}
