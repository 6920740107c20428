// SPDX-License-Identifier: Apache-2.0
//! The paths of transfers.

use std::ffi::c_char;

use crate::transfer::Path;

/// memcpy.
pub const KVMEM_PATH_MEMCPY: u32 = 1;
/// NIXL reads from a peer.
pub const KVMEM_PATH_NIXL_READ: u32 = 2;
/// NIXL writes to a peer.
pub const KVMEM_PATH_NIXL_WRITE: u32 = 3;
/// NIXL reads from a file.
pub const KVMEM_PATH_NIXL_FILE_READ: u32 = 4;
/// NIXL writes to a file.
pub const KVMEM_PATH_NIXL_FILE_WRITE: u32 = 5;
/// The CUDA driver copies, one copy a move, on a stream of the transfer's own.
pub const KVMEM_PATH_CUDA_COPY: u32 = 6;

/// The CUDA driver copies, all moves in one call, on a stream of the library's own.
pub const KVMEM_PATH_CUDA_BATCH: u32 = 7;
/// The CUDA driver copies rows of blocks at regular distances.
pub const KVMEM_PATH_CUDA_2D: u32 = 8;
/// A kernel reads and writes both sides itself.
pub const KVMEM_PATH_CUDA_KERNEL: u32 = 9;
/// A kernel gathers or scatters inside GPU memory, and the CUDA driver copies what then lies together.
pub const KVMEM_PATH_CUDA_STAGED: u32 = 10;
/// io_uring reads or writes a file.
pub const KVMEM_PATH_URING: u32 = 11;
/// Threads read or write a file by preadv and pwritev.
pub const KVMEM_PATH_PREAD: u32 = 12;
/// Between a file and GPU memory through page-locked memory: io_uring has the file's side, the CUDA driver
/// the GPU's.
pub const KVMEM_PATH_URING_STAGED: u32 = 13;
/// The same with threads for the file's side.
pub const KVMEM_PATH_PREAD_STAGED: u32 = 14;

/// The name of a path, such as "NIXL read".
///
/// @param path any value
/// @return a static string; "unknown" for a value that is none
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_path_name(path: u32) -> *const c_char {
    PATHS.iter().find(|(value, _)| *value == path).map_or(c"unknown", |(_, path)| path.name()).as_ptr()
}

/// The value of a path.
pub(in crate::ffi) fn value_of(path: Path) -> u32 {
    PATHS.iter().find(|(_, known)| *known == path).map_or(0, |(value, _)| *value)
}

/// The paths by their values.
pub(in crate::ffi) const PATHS: [(u32, Path); 14] = [
    (KVMEM_PATH_MEMCPY, Path::Memcpy),
    (KVMEM_PATH_NIXL_READ, Path::NixlRead),
    (KVMEM_PATH_NIXL_WRITE, Path::NixlWrite),
    (KVMEM_PATH_NIXL_FILE_READ, Path::NixlFileRead),
    (KVMEM_PATH_NIXL_FILE_WRITE, Path::NixlFileWrite),
    (KVMEM_PATH_CUDA_COPY, Path::CudaCopy),
    (KVMEM_PATH_CUDA_BATCH, Path::CudaBatch),
    (KVMEM_PATH_CUDA_2D, Path::Cuda2d),
    (KVMEM_PATH_CUDA_KERNEL, Path::CudaKernel),
    (KVMEM_PATH_CUDA_STAGED, Path::CudaStaged),
    (KVMEM_PATH_URING, Path::Uring),
    (KVMEM_PATH_PREAD, Path::Pread),
    (KVMEM_PATH_URING_STAGED, Path::UringStaged),
    (KVMEM_PATH_PREAD_STAGED, Path::PreadStaged),
];
