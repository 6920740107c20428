// SPDX-License-Identifier: Apache-2.0
//! The driver's functions that kvmem calls, looked up before the first call.
//!
//! cudarc loads the library and defines the types. Its own wrappers panic on a missing symbol, and return a Rust enum,
//! which is undefined behaviour for result codes of a newer driver. So the functions are declared here, and return
//! integers.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUlinkState, CUmemcpyAttributes, CUmodule,
    CUstream, CUuuid,
};

use super::codes::Code;
use super::driver_structs::{RawAccess, RawIpcHandle, RawLocation, RawProperties, RawRows};
use super::entry::EntryPoint;
use crate::base::{Result, ensure};

macro_rules! functions {
    (
        $(fn $field:ident = $symbol:literal ($($type:ty),*);)+
        $(optional fn $newer:ident = $newer_symbol:literal ($($newer_type:ty),*);)+
    ) => {
        /// The functions. Those that old drivers lack are options.
        pub(super) struct Api {
            $(pub(super) $field: EntryPoint<unsafe extern "C" fn($($type),*) -> Code>,)+
            $(pub(super) $newer: Option<EntryPoint<unsafe extern "C" fn($($newer_type),*) -> Code>>,)+
        }

        impl Api {
            /// Looks all functions up. Fails with the name of the first required one that the driver lacks.
            pub fn load() -> Result<Self> {
                // SAFETY: only finds and loads the library.
                let present = unsafe { sys::is_culib_present() };
                ensure!(
                    present,
                    UnavailableCuda,
                    "the CUDA driver is missing: the loader does not find libcuda.so.1"
                );
                $(
                    // SAFETY: the library is present; the type is the function's own.
                    let Some($field) = (unsafe { EntryPoint::find($symbol) }) else {
                        crate::base::error::fail!(UnavailableCuda, "the CUDA driver is too old: it has no {}", $symbol);
                    };
                )+
                // SAFETY: as above.
                $(let $newer = unsafe { EntryPoint::find($newer_symbol) };)+
                Ok(Self { $($field,)+ $($newer),+ })
            }
        }
    };
}

functions! {
    fn init = "cuInit"(c_uint);
    fn driver_get_version = "cuDriverGetVersion"(*mut c_int);
    fn get_error_name = "cuGetErrorName"(Code, *mut *const c_char);

    fn device_get_count = "cuDeviceGetCount"(*mut c_int);
    fn device_get = "cuDeviceGet"(*mut CUdevice, c_int);
    fn device_get_name = "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    fn device_get_uuid = "cuDeviceGetUuid_v2"(*mut CUuuid, CUdevice);
    fn device_total_mem = "cuDeviceTotalMem_v2"(*mut usize, CUdevice);
    fn device_get_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, CUdevice);
    fn device_can_access_peer = "cuDeviceCanAccessPeer"(*mut c_int, CUdevice, CUdevice);

    fn primary_ctx_retain = "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    fn primary_ctx_get_state = "cuDevicePrimaryCtxGetState"(CUdevice, *mut c_uint, *mut c_int);
    fn primary_ctx_release = "cuDevicePrimaryCtxRelease_v2"(CUdevice);
    fn ctx_push_current = "cuCtxPushCurrent_v2"(CUcontext);
    fn ctx_pop_current = "cuCtxPopCurrent_v2"(*mut CUcontext);
    fn thread_exchange_capture_mode = "cuThreadExchangeStreamCaptureMode"(*mut c_uint);

    fn ctx_get_id = "cuCtxGetId"(CUcontext, *mut u64);
    fn ctx_enable_peer_access = "cuCtxEnablePeerAccess"(CUcontext, c_uint);

    fn mem_alloc = "cuMemAlloc_v2"(*mut CUdeviceptr, usize);
    fn mem_free = "cuMemFree_v2"(CUdeviceptr);
    fn mem_get_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    fn mem_get_address_range = "cuMemGetAddressRange_v2"(*mut CUdeviceptr, *mut usize, CUdeviceptr);
    fn pointer_get_attribute = "cuPointerGetAttribute"(*mut c_void, c_int, CUdeviceptr);
    fn mem_host_register = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    fn mem_host_unregister = "cuMemHostUnregister"(*mut c_void);

    fn mem_get_granularity = "cuMemGetAllocationGranularity"(*mut usize, *const RawProperties, c_uint);
    fn mem_address_reserve = "cuMemAddressReserve"(*mut CUdeviceptr, usize, usize, CUdeviceptr, u64);
    fn mem_address_free = "cuMemAddressFree"(CUdeviceptr, usize);
    fn mem_create = "cuMemCreate"(*mut u64, usize, *const RawProperties, u64);
    fn mem_release = "cuMemRelease"(u64);
    fn mem_map = "cuMemMap"(CUdeviceptr, usize, usize, u64, u64);
    fn mem_unmap = "cuMemUnmap"(CUdeviceptr, usize);
    fn mem_set_access = "cuMemSetAccess"(CUdeviceptr, usize, *const RawAccess, usize);
    fn mem_get_access = "cuMemGetAccess"(*mut u64, *const RawLocation, CUdeviceptr);
    fn mem_export = "cuMemExportToShareableHandle"(*mut c_void, u64, c_uint, u64);
    fn mem_import = "cuMemImportFromShareableHandle"(*mut u64, *mut c_void, c_uint);
    fn mem_get_properties = "cuMemGetAllocationPropertiesFromHandle"(*mut RawProperties, u64);
    fn mem_retain = "cuMemRetainAllocationHandle"(*mut u64, *mut c_void);

    fn ipc_get_mem_handle = "cuIpcGetMemHandle"(*mut RawIpcHandle, CUdeviceptr);
    fn ipc_open_mem_handle = "cuIpcOpenMemHandle_v2"(*mut CUdeviceptr, RawIpcHandle, c_uint);
    fn ipc_close_mem_handle = "cuIpcCloseMemHandle"(CUdeviceptr);

    fn link_create = "cuLinkCreate_v2"(c_uint, *mut c_uint, *mut *mut c_void, *mut CUlinkState);
    fn link_add_data = "cuLinkAddData_v2"(
        CUlinkState, c_uint, *mut c_void, usize, *const c_char, c_uint, *mut c_uint, *mut *mut c_void
    );
    fn link_complete = "cuLinkComplete"(CUlinkState, *mut *mut c_void, *mut usize);
    fn link_destroy = "cuLinkDestroy"(CUlinkState);
    fn module_load_data = "cuModuleLoadData"(*mut CUmodule, *const c_void);
    fn module_unload = "cuModuleUnload"(CUmodule);
    fn module_get_function = "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
    fn launch_kernel = "cuLaunchKernel"(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        CUstream, *mut *mut c_void, *mut *mut c_void
    );

    fn event_create = "cuEventCreate"(*mut CUevent, c_uint);
    fn event_record = "cuEventRecord"(CUevent, CUstream);
    fn event_query = "cuEventQuery"(CUevent);
    fn event_elapsed_time = "cuEventElapsedTime"(*mut f32, CUevent, CUevent);
    fn event_destroy = "cuEventDestroy_v2"(CUevent);

    fn stream_create_with_priority = "cuStreamCreateWithPriority"(*mut CUstream, c_uint, c_int);
    fn stream_destroy = "cuStreamDestroy_v2"(CUstream);
    fn stream_query = "cuStreamQuery"(CUstream);
    fn stream_wait_event = "cuStreamWaitEvent"(CUstream, CUevent, c_uint);
    fn launch_host_func = "cuLaunchHostFunc"(CUstream, Option<unsafe extern "C" fn(*mut c_void)>, *mut c_void);
    fn stream_get_ctx = "cuStreamGetCtx"(CUstream, *mut CUcontext);
    fn stream_is_capturing = "cuStreamIsCapturing"(CUstream, *mut c_uint);
    fn memset_d8_async = "cuMemsetD8Async"(CUdeviceptr, u8, usize, CUstream);
    fn memcpy_async = "cuMemcpyAsync"(CUdeviceptr, CUdeviceptr, usize, CUstream);
    fn memcpy_2d_async = "cuMemcpy2DAsync_v2"(*const RawRows, CUstream);

    optional fn ctx_record_event = "cuCtxRecordEvent"(CUcontext, CUevent);
    optional fn memcpy_batch_async = "cuMemcpyBatchAsync"(
        *mut CUdeviceptr, *mut CUdeviceptr, *mut usize, usize,
        *mut CUmemcpyAttributes, *mut usize, usize, *mut usize, CUstream
    );
}
