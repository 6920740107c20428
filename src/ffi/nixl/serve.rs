// SPDX-License-Identifier: Apache-2.0
//! Owners that serve transfers of their layouts.

use std::time::Duration;

use crate::base::Error;
use crate::engine::peer::served::{ServeOptions, serve};
use crate::ffi::common::{borrow, call, check_flags, kvmem_error, kvmem_status, options, read_nullable};
use crate::ffi::layout::kvmem_layout;

/// Peers may write to the layout, too.
pub const KVMEM_SERVE_WRITE: u64 = 1;
/// Stage in page-locked host memory, also for GPU memory. Peers with layouts in host memory need it.
pub const KVMEM_SERVE_FROM_HOST: u64 = 2;

/// Options of kvmem_layout_serve.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_serve_options {
    /// sizeof(kvmem_serve_options)
    pub struct_size: usize,
    /// KVMEM_SERVE_* flags.
    pub flags: u64,
    /// Bytes of staging memory, at least 32 KiB; 0 for 16 MiB, 64 MiB on a GPU.
    pub staging_size: u64,
    /// Nanoseconds that the owner waits for a peer that neither reads nor writes, before it ends the
    /// peer's session; 0 for 30 s. If other peers wait, it ends a session that has sent nothing for 5 s.
    /// A session for which the owner's GPU finishes no copy for so long ends, too.
    pub stall_timeout_ns: u64,
    /// Nanoseconds after which a lease of a peer ends at the latest (kvmem_lease_create), unless the peer
    /// renews it, rounded down to milliseconds, but at least one; 0 for 60 s. KVMEM_TIMEOUT_FOREVER: 49 days.
    pub max_lease_ns: u64,
}
options!(kvmem_serve_options);

/// Serves transfers of a layout to peers, as long as the layout exists.
///
/// A transfer between layouts that store the same tokens differently has a contiguous range per row, and NIXL
/// takes microseconds for each. For peers of a layout that is served, this process gathers rows in staging
/// memory, which they read in large ranges, or scatters what they have written there. Their transfers use
/// this if it is faster. For a layout in GPU memory the staging memory is plain memory of the same GPU, and a
/// kernel gathers and scatters. Get the metadata of the agent, and export the layout, after this call.
///
/// It also keeps leases of the layout for peers (kvmem_lease_create, kvmem_layout_get_accesses).
///
/// @param layout a layout that kvmem_layout_export exports: in host or GPU memory that this process owns, and
///        built with an agent. If its tokens have separate regions, transfers do not use the service
/// @return KVMEM_STATUS_INVALID_STATE: the layout has no agent, or none with a backend that reaches peers
///         KVMEM_STATUS_ALREADY_EXISTS: the layout is served
///         KVMEM_STATUS_UNSUPPORTED: the layout is remote, in memory of another process, or in a file, in
///           objects or in block storage
///
/// Notes: Peers can read what they request, and with KVMEM_SERVE_WRITE write it. They cannot make this
/// process access other memory. NIXL itself does not restrict peers that have the metadata of the agent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_serve(
    layout: *mut kvmem_layout,
    options: *const kvmem_serve_options,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let layout = borrow(scope, layout)?;
        let options = match read_nullable(options)? {
            Some(options) => converted(&options)?,
            None => ServeOptions::default(),
        };
        serve(layout, &options)
    })
}

fn converted(options: &kvmem_serve_options) -> Result<ServeOptions, Error> {
    check_flags("kvmem_serve_options", options.flags, KVMEM_SERVE_WRITE | KVMEM_SERVE_FROM_HOST)?;
    Ok(ServeOptions {
        staging_size: options.staging_size,
        writes: options.flags & KVMEM_SERVE_WRITE != 0,
        from_host: options.flags & KVMEM_SERVE_FROM_HOST != 0,
        stall_timeout: (options.stall_timeout_ns > 0).then(|| Duration::from_nanos(options.stall_timeout_ns)),
        longest_lease: (options.max_lease_ns > 0).then(|| Duration::from_nanos(options.max_lease_ns)),
    })
}
