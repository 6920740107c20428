// SPDX-License-Identifier: Apache-2.0
//! Intentionally leaked objects: those that hardware or another library may still use, for an unknown time. They are kept
//! reachable so that leak checkers stay quiet, and what they have of a GPU is counted.

use std::any::Any;

use crate::base::sync::Mutex;

/// Objects that have memory of a GPU, or page-locked for it, and its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaked {
    pub objects: u64,
    pub bytes: u64,
}

struct All {
    objects: Vec<Box<dyn Any + Send>>,
    /// Ordinals and bytes.
    memory: Vec<(i32, u64)>,
}

/// For messages about leaked memory.
pub const COUNTED: &str = "kept_bytes of kvmem_cuda_get_device_info counts what is on a GPU";

static LEAKED: Mutex<All> = Mutex::new(All { objects: Vec::new(), memory: Vec::new() });

/// Keeps a value until the process ends.
pub fn intentionally(value: impl Any + Send) {
    with_memory(value, []);
}

/// The same for a value that has so many bytes of devices, each with its ordinal.
pub fn with_memory(value: impl Any + Send, memory: impl IntoIterator<Item = (i32, u64)>) {
    keep(Box::new(value), &mut memory.into_iter());
}

#[cold]
#[inline(never)]
fn keep(value: Box<dyn Any + Send>, memory: &mut dyn Iterator<Item = (i32, u64)>) {
    let mut leaked = LEAKED.lock();
    leaked.memory.extend(memory);
    leaked.objects.push(value);
}

/// What was leaked of a device.
pub fn of_device(ordinal: i32) -> Leaked {
    let leaked = LEAKED.lock();
    let of_device = leaked.memory.iter().filter(|(on, _)| *on == ordinal);
    of_device.fold(Leaked::default(), |sum, (_, bytes)| Leaked {
        objects: sum.objects + 1,
        bytes: sum.bytes + bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_devices_is_counted() {
        const DEVICE: i32 = 7000;
        intentionally(());
        assert_eq!(of_device(DEVICE), Leaked::default());
        with_memory((), [(DEVICE, 3), (DEVICE + 1, 5), (DEVICE, 4)]);
        assert_eq!(of_device(DEVICE), Leaked { objects: 2, bytes: 7 });
        assert_eq!(of_device(DEVICE + 1), Leaked { objects: 1, bytes: 5 });
    }
}
