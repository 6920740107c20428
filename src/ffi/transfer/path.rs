// SPDX-License-Identifier: Apache-2.0
//! The paths of transfers.

use std::ffi::c_char;

use crate::transfer::TransferPath;

/// Host threads copy by memcpy.
pub const KVMEM_PATH_MEMCPY: u32 = 1;
/// NIXL reads from a peer.
pub const KVMEM_PATH_NIXL_READ: u32 = 2;
/// NIXL writes to a peer.
pub const KVMEM_PATH_NIXL_WRITE: u32 = 3;
/// NIXL reads from a file.
pub const KVMEM_PATH_NIXL_FILE_READ: u32 = 4;
/// NIXL writes to a file.
pub const KVMEM_PATH_NIXL_FILE_WRITE: u32 = 5;
/// The CUDA driver copies, one call per contiguous range.
pub const KVMEM_PATH_CUDA_COPY: u32 = 6;

/// The CUDA driver copies, one call for all ranges.
pub const KVMEM_PATH_CUDA_BATCH: u32 = 7;
/// The CUDA driver copies rows of blocks at regular distances.
pub const KVMEM_PATH_CUDA_2D: u32 = 8;
/// A kernel reads and writes both sides directly.
pub const KVMEM_PATH_CUDA_KERNEL: u32 = 9;
/// A kernel gathers or scatters in GPU memory, and the CUDA driver copies contiguous ranges.
pub const KVMEM_PATH_CUDA_STAGED: u32 = 10;
/// io_uring reads or writes a file.
pub const KVMEM_PATH_URING: u32 = 11;
/// Threads read or write a file by preadv and pwritev.
pub const KVMEM_PATH_PREAD: u32 = 12;
/// Between a file and GPU memory, through page-locked host memory: io_uring accesses the file, the CUDA
/// driver the GPU.
pub const KVMEM_PATH_URING_STAGED: u32 = 13;
/// As KVMEM_PATH_URING_STAGED, with threads that access the file by preadv and pwritev.
pub const KVMEM_PATH_PREAD_STAGED: u32 = 14;

/// NIXL reads large ranges of a peer's memory into staging memory, and host threads or a GPU copy rows from
/// there.
pub const KVMEM_PATH_NIXL_READ_STAGED: u32 = 15;
/// Host threads or a GPU gather rows in staging memory, and NIXL writes large ranges to a peer from there.
pub const KVMEM_PATH_NIXL_WRITE_STAGED: u32 = 16;

/// The owner of the blocks gathers rows in its staging memory, and NIXL reads large ranges from there.
pub const KVMEM_PATH_NIXL_READ_SERVED: u32 = 17;
/// NIXL writes large ranges to staging memory of the owner of the blocks, which copies rows from there.
pub const KVMEM_PATH_NIXL_WRITE_SERVED: u32 = 18;

/// NIXL reads from objects to host memory, one request per range of an object that is contiguous there.
pub const KVMEM_PATH_NIXL_OBJECT_READ: u32 = 19;
/// NIXL writes whole objects from contiguous host memory.
pub const KVMEM_PATH_NIXL_OBJECT_WRITE: u32 = 20;
/// NIXL reads objects into staging memory, and host threads or a GPU copy rows from there.
pub const KVMEM_PATH_NIXL_OBJECT_READ_STAGED: u32 = 21;
/// Host threads or a GPU gather objects in staging memory, and NIXL writes them from there.
pub const KVMEM_PATH_NIXL_OBJECT_WRITE_STAGED: u32 = 22;
/// NIXL reads from block storage, to memory that its backend accepts.
pub const KVMEM_PATH_NIXL_BLOCK_READ: u32 = 23;
/// NIXL writes to block storage, from memory that its backend accepts.
pub const KVMEM_PATH_NIXL_BLOCK_WRITE: u32 = 24;

/// Returns the name of a path, such as "NIXL read". The string is static.
///
/// @param path any value; the name of an unknown one is "unknown"
#[unsafe(no_mangle)]
pub extern "C" fn kvmem_path_name(path: u32) -> *const c_char {
    PATHS.iter().find(|(value, _)| *value == path).map_or(c"unknown", |(_, path)| path.name()).as_ptr()
}

/// The C value of a path.
pub(in crate::ffi) fn value_of(path: TransferPath) -> u32 {
    PATHS.iter().find(|(_, known)| *known == path).map_or(0, |(value, _)| *value)
}

/// The paths and their C values.
pub(in crate::ffi) const PATHS: [(u32, TransferPath); 24] = [
    (KVMEM_PATH_MEMCPY, TransferPath::Memcpy),
    (KVMEM_PATH_NIXL_READ, TransferPath::NixlRead),
    (KVMEM_PATH_NIXL_WRITE, TransferPath::NixlWrite),
    (KVMEM_PATH_NIXL_FILE_READ, TransferPath::NixlFileRead),
    (KVMEM_PATH_NIXL_FILE_WRITE, TransferPath::NixlFileWrite),
    (KVMEM_PATH_CUDA_COPY, TransferPath::CudaCopy),
    (KVMEM_PATH_CUDA_BATCH, TransferPath::CudaBatch),
    (KVMEM_PATH_CUDA_2D, TransferPath::Cuda2d),
    (KVMEM_PATH_CUDA_KERNEL, TransferPath::CudaKernel),
    (KVMEM_PATH_CUDA_STAGED, TransferPath::CudaStaged),
    (KVMEM_PATH_URING, TransferPath::Uring),
    (KVMEM_PATH_PREAD, TransferPath::Pread),
    (KVMEM_PATH_URING_STAGED, TransferPath::UringStaged),
    (KVMEM_PATH_PREAD_STAGED, TransferPath::PreadStaged),
    (KVMEM_PATH_NIXL_READ_STAGED, TransferPath::NixlReadStaged),
    (KVMEM_PATH_NIXL_WRITE_STAGED, TransferPath::NixlWriteStaged),
    (KVMEM_PATH_NIXL_READ_SERVED, TransferPath::NixlReadServed),
    (KVMEM_PATH_NIXL_WRITE_SERVED, TransferPath::NixlWriteServed),
    (KVMEM_PATH_NIXL_OBJECT_READ, TransferPath::NixlObjectRead),
    (KVMEM_PATH_NIXL_OBJECT_WRITE, TransferPath::NixlObjectWrite),
    (KVMEM_PATH_NIXL_OBJECT_READ_STAGED, TransferPath::NixlObjectReadStaged),
    (KVMEM_PATH_NIXL_OBJECT_WRITE_STAGED, TransferPath::NixlObjectWriteStaged),
    (KVMEM_PATH_NIXL_BLOCK_READ, TransferPath::NixlBlockRead),
    (KVMEM_PATH_NIXL_BLOCK_WRITE, TransferPath::NixlBlockWrite),
];
