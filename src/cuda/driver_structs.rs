// SPDX-License-Identifier: Apache-2.0
//! Structs that the driver's functions take, where cudarc's cannot be used. They depend on nothing else in this folder.

use std::ffi::c_void;

/// CUipcMemHandle, which is passed by value.
#[repr(C)]
pub(super) struct RawIpcHandle(pub [u8; 64]);

/// CUmemLocation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawLocation {
    pub kind: u32,
    pub id: i32,
}

/// CU_MEM_LOCATION_TYPE_DEVICE.
pub(super) const LOCATION_DEVICE: u32 = 1;
/// CU_MEM_LOCATION_TYPE_HOST_NUMA.
pub(super) const LOCATION_HOST_NUMA: u32 = 3;

impl RawLocation {
    /// A device, by ordinal.
    pub fn device(ordinal: i32) -> Self {
        Self { kind: LOCATION_DEVICE, id: ordinal }
    }
}

/// CUmemAllocationProp. cudarc's has a Rust enum where the driver takes a set of bits.
#[repr(C)]
pub(super) struct RawProperties {
    pub allocation_type: u32,
    pub handle_types: u32,
    pub location: RawLocation,
    pub win32_metadata: *mut c_void,
    pub compression: u8,
    pub gpu_direct_rdma: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

impl RawProperties {
    pub fn empty() -> Self {
        Self {
            allocation_type: 0,
            handle_types: 0,
            location: RawLocation { kind: 0, id: 0 },
            win32_metadata: std::ptr::null_mut(),
            compression: 0,
            gpu_direct_rdma: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }
}

/// CUmemAccessDesc.
#[repr(C)]
pub(super) struct RawAccess {
    pub location: RawLocation,
    pub flags: u32,
}

/// One side of a CUDA_MEMCPY2D.
#[repr(C)]
pub(super) struct RawSide {
    x: usize,
    y: usize,
    memory_type: u32,
    host: *const c_void,
    device: u64,
    array: *const c_void,
    pitch: usize,
}

impl RawSide {
    /// CU_MEMORYTYPE_UNIFIED: the driver derives from the address whether it is host or device memory.
    const UNIFIED: u32 = 4;

    pub fn new(address: u64, pitch: u64) -> Self {
        let none = std::ptr::null();
        Self {
            x: 0,
            y: 0,
            memory_type: Self::UNIFIED,
            host: none,
            device: address,
            array: none,
            pitch: pitch as usize,
        }
    }
}

/// CUDA_MEMCPY2D. cudarc's has Rust enums, for which zero is not a valid value.
#[repr(C)]
pub(super) struct RawRows {
    pub source: RawSide,
    pub destination: RawSide,
    pub width: usize,
    pub height: usize,
}
