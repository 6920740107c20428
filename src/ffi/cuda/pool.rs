// SPDX-License-Identifier: Apache-2.0
//! Memory for PyTorch's allocator.

use std::ffi::c_void;
use std::ptr;

use crate::base::log;
use crate::cuda::CallerStream;
use crate::ffi::common::handle::{borrow, borrow_nullable, quiet};
use crate::ffi::common::{call, kvmem_error, kvmem_status, not_one_of};
use crate::ffi::cuda::stream::CUstream_st;
use crate::ffi::region::kvmem_region;
use crate::region::pool;

/// Makes a region the pool of a GPU: kvmem_pool_malloc returns blocks of it. There is one pool per GPU for
/// all threads; other pools keep the blocks that they have.
///
/// The region may be destroyed: its memory is freed when it is not the pool, has no blocks, and the GPU has
/// finished its work. While it is a pool, do not commit or decommit it by other functions.
///
/// @param device the GPU
/// @param region device or elastic memory of the GPU, allocated or adopted by this process, not a view; NULL:
///        the GPU has no pool
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the region is of another tier or GPU, or is a view; or another pool
///           has blocks in its memory
///         KVMEM_STATUS_UNSUPPORTED: the region was imported
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_pool_set_current(
    device: i32,
    region: *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let region = borrow_nullable(scope, region.cast_const())?;
        pool::set_current(device, region.map(|region| &**region))
    })
}

/// Allocates a block of the pool of a GPU. Elastic memory is committed for it. The signature is that of the
/// allocation function of torch.cuda.memory.CUDAPluggableAllocator.
///
/// A block that was freed is reused in the order of streams: work on the stream waits for the work that was
/// on the stream of the freed block then. The host waits only if there is no other memory: for up to 10 s for
/// work that uses free blocks, whose memory it then decommits.
/// @param size bytes
/// @param device the GPU
/// @param stream the stream that uses the block; NULL is the legacy default stream of the primary context. If
///        it is captured into a graph, the block has no memory that earlier work uses
/// @return the address, a multiple of 512; NULL after a failure, whose reason is logged, so that PyTorch
///         raises its error for too little memory
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_pool_malloc(
    size: usize,
    device: i32,
    stream: *mut CUstream_st,
) -> *mut c_void {
    quiet(ptr::null_mut(), || match pool::allocate(device, size as u64, CallerStream::new(stream.cast())) {
        Ok(address) => ptr::with_exposed_provenance_mut(address as usize),
        Err(error) => {
            log!(Warn, "kvmem_pool_malloc: {size} bytes on device {device}: {error}");
            ptr::null_mut()
        }
    })
}

/// Frees a block of kvmem_pool_malloc of any pool. The signature is that of the free function of
/// torch.cuda.memory.CUDAPluggableAllocator.
///
/// Does not wait. The memory stays committed for other blocks, until kvmem_pool_commit. A failure is logged.
/// @param address the block; NULL does nothing
/// @param size ignored
/// @param device ignored
/// @param stream the stream whose work has used the block. If it is captured into a graph, the memory is not
///        reused before kvmem_pool_commit with KVMEM_POOL_NOTHING
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_pool_free(
    address: *mut c_void,
    size: usize,
    device: i32,
    stream: *mut CUstream_st,
) {
    quiet((), || {
        if address.is_null() {
            return;
        }
        if let Err(error) = pool::free(address.expose_provenance() as u64, CallerStream::new(stream.cast())) {
            log!(Warn, "kvmem_pool_free: {size} bytes at {address:p} on device {device}: {error}");
        }
    });
}

/// The extents that blocks use.
pub const KVMEM_POOL_BLOCKS: u32 = 1;
/// No extents.
pub const KVMEM_POOL_NOTHING: u32 = 2;

/// Sets which extents of an elastic pool have memory. Blocks keep their addresses. Their content is lost when
/// their extents are decommitted.
///
/// With KVMEM_POOL_NOTHING an engine sleeps, with KVMEM_POOL_BLOCKS it wakes. While all blocks have memory,
/// KVMEM_POOL_BLOCKS decommits what no block and no work uses. Device memory keeps its content with
/// KVMEM_POOL_NOTHING: only blocks that were freed during a capture can be reused then.
///
/// @param region a region that kvmem_pool_set_current was called with
/// @param extents KVMEM_POOL_BLOCKS; or KVMEM_POOL_NOTHING, after the end of all work that uses the region
/// @return KVMEM_STATUS_INVALID_ARGUMENT: extents is unknown, or the region not elastic (KVMEM_POOL_BLOCKS)
///         KVMEM_STATUS_INVALID_STATE: the region never was a pool
///         KVMEM_STATUS_BUSY: a transfer, request or share uses an extent that would be decommitted, or an
///           agent is still deregistering memory. No extent has lost its memory
///         any status of kvmem_region_commit or kvmem_region_decommit
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_pool_commit(
    region: *mut kvmem_region,
    extents: u32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let region = borrow(scope, region.cast_const())?;
        match extents {
            KVMEM_POOL_BLOCKS => region.commit_blocks(),
            KVMEM_POOL_NOTHING => region.decommit_blocks(),
            other => Err(not_one_of("extents", other, "KVMEM_POOL_BLOCKS or KVMEM_POOL_NOTHING")),
        }
    })
}
