// SPDX-License-Identifier: Apache-2.0
//! The methods of transfers.

use std::ffi::c_char;

use crate::transfer::TransferMethod;

/// Host memory: host threads copy by memcpy.
pub const KVMEM_METHOD_MEMCPY: u32 = 1;
/// GPU memory: the CUDA driver copies, one call of cuMemcpyAsync per contiguous range.
pub const KVMEM_METHOD_CUDA_COPY: u32 = 2;
/// GPU memory: the CUDA driver copies all contiguous ranges by one call of cuMemcpyBatchAsync.
pub const KVMEM_METHOD_CUDA_BATCH: u32 = 3;
/// GPU memory: the CUDA driver copies rows of blocks at regular distances, by cuMemcpy2DAsync.
pub const KVMEM_METHOD_CUDA_2D: u32 = 4;
/// GPU memory: a kernel on the SMs reads and writes both sides directly.
pub const KVMEM_METHOD_CUDA_KERNEL: u32 = 5;
/// Between host and GPU memory: a kernel gathers or scatters in staging memory on the GPU, and a copy engine
/// moves contiguous ranges.
pub const KVMEM_METHOD_CUDA_STAGED: u32 = 6;
/// Files: io_uring. GPU memory is copied through page-locked host memory.
pub const KVMEM_METHOD_URING: u32 = 7;
/// Files: as KVMEM_METHOD_URING, with threads that call preadv and pwritev.
pub const KVMEM_METHOD_PREAD: u32 = 8;
/// Peers, files, objects, block storage: NIXL reads or writes, one descriptor per contiguous range; a request
/// writes a whole object. Between a file and GPU memory, NIXL uses GPUDirect Storage.
pub const KVMEM_METHOD_NIXL: u32 = 9;
/// Peers, objects: NIXL reads large ranges or whole objects to staging memory of this process, or writes them
/// from there. Host threads or a GPU scatter or gather rows.
pub const KVMEM_METHOD_NIXL_STAGED: u32 = 10;
/// Peers that serve their layout: NIXL reads large ranges from staging memory of the owner, which gathers
/// rows, or writes them there, and the owner scatters them.
pub const KVMEM_METHOD_NIXL_SERVED: u32 = 11;

/// Returns the name of a method, such as "CUDA kernel". The string is static.
///
/// @param method any value; the name of an unknown one is "unknown"
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_method_name(method: u32) -> *const c_char {
    METHODS
        .iter()
        .find(|(value, _)| *value == method)
        .map_or(c"unknown", |(_, method)| method.name())
        .as_ptr()
}

/// The C value of a method.
pub(in crate::ffi) fn value_of(method: TransferMethod) -> u32 {
    METHODS.iter().find(|(_, known)| *known == method).map_or(0, |(value, _)| *value)
}

/// The methods and their C values.
pub(in crate::ffi) const METHODS: [(u32, TransferMethod); 11] = [
    (KVMEM_METHOD_MEMCPY, TransferMethod::Memcpy),
    (KVMEM_METHOD_CUDA_COPY, TransferMethod::CudaCopy),
    (KVMEM_METHOD_CUDA_BATCH, TransferMethod::CudaBatch),
    (KVMEM_METHOD_CUDA_2D, TransferMethod::Cuda2d),
    (KVMEM_METHOD_CUDA_KERNEL, TransferMethod::CudaKernel),
    (KVMEM_METHOD_CUDA_STAGED, TransferMethod::CudaStaged),
    (KVMEM_METHOD_URING, TransferMethod::Uring),
    (KVMEM_METHOD_PREAD, TransferMethod::Pread),
    (KVMEM_METHOD_NIXL, TransferMethod::Nixl),
    (KVMEM_METHOD_NIXL_STAGED, TransferMethod::NixlStaged),
    (KVMEM_METHOD_NIXL_SERVED, TransferMethod::NixlServed),
];
