// SPDX-License-Identifier: Apache-2.0
//! Options of new transfers, checked and as the core has them.

use super::guard::Scope;
use super::handle::borrow_nullable;
use super::options::{check_flags, not_one_of};
use super::path::PATHS;
use super::text;
use super::transfer::*;
use crate::error::{Result, ensure};
use crate::transfer::{BlockPair, PairedRange, Preferences, Request, Step, Wanted};

/// What is asked for.
///
/// # Safety
/// Every pointer in the options must be NULL or valid.
pub(super) unsafe fn request<'a>(scope: &Scope<'_>, options: &kvmem_transfer_options) -> Result<Request<'a>> {
    let known = KVMEM_TRANSFER_ZERO_COPY
        | KVMEM_TRANSFER_NO_HOST_BOUNCE
        | KVMEM_TRANSFER_BY_LAYER
        | KVMEM_TRANSFER_VERIFY;
    check_flags("kvmem_transfer_options", options.flags, known)?;
    // SAFETY: the caller's promise, for all below.
    unsafe {
        // The core's pair is laid out as C's is, field by field.
        let pairs = text::items(options.pairs.cast::<BlockPair>(), options.num_pairs, "pairs")?;
        let message = text::bytes(options.notification, options.notification_size, "notification")?;
        let queue = borrow_nullable(scope, options.queue)?;
        Ok(Request {
            step: Step {
                pairs,
                user_data: options.user_data,
                notification: (!options.notification.is_null()).then(|| message.to_vec()),
                checksums: checksums(options.checksums, options.num_pairs)?,
            },
            wanted: wanted(options)?,
            queue: queue.map(|queue| queue.0.clone()),
            preferences: preferences(options)?,
            verifies_source: options.flags & KVMEM_TRANSFER_VERIFY != 0,
        })
    }
}

/// # Safety
/// The checksums must be NULL or readable, one per pair.
unsafe fn checksums<'a>(checksums: *const u32, num_pairs: usize) -> Result<Option<&'a [u32]>> {
    if checksums.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { text::items(checksums, num_pairs, "checksums") }.map(Some)
}

fn preferences(options: &kvmem_transfer_options) -> Result<Preferences> {
    ensure!(options.reserved == 0, InvalidArgument, "reserved is {}, it must be 0", options.reserved);
    let compute_is_idle = match options.compute {
        KVMEM_COMPUTE_MAY_RUN => false,
        KVMEM_COMPUTE_IDLE => true,
        other => return Err(not_one_of("compute", other, "KVMEM_COMPUTE_*")),
    };
    let asked = PATHS.iter().find(|(value, _)| *value == options.path).map(|(_, path)| *path);
    if asked.is_none() && options.path != 0 {
        return Err(not_one_of("path", options.path, "KVMEM_PATH_*"));
    }
    Ok(Preferences {
        compute_is_idle,
        max_ctas: options.max_ctas,
        staging_size: options.staging_size,
        zero_copy: options.flags & KVMEM_TRANSFER_ZERO_COPY != 0,
        no_host_bounce: options.flags & KVMEM_TRANSFER_NO_HOST_BOUNCE != 0,
        by_layer: options.flags & KVMEM_TRANSFER_BY_LAYER != 0,
        path: asked,
    })
}

fn wanted(options: &kvmem_transfer_options) -> Result<Wanted> {
    let kvmem_transfer_options { source_layer, destination_layer, num_layers, .. } = *options;
    let kvmem_transfer_options { source_outer, destination_outer, num_outers, .. } = *options;
    Ok(Wanted {
        layers: range("layer", "num_layers", source_layer, destination_layer, num_layers)?,
        outers: range("outer slot", "num_outers", source_outer, destination_outer, num_outers)?,
    })
}

fn range(name: &str, field: &str, source: u64, destination: u64, count: u64) -> Result<Option<PairedRange>> {
    ensure!(
        count > 0 || (source == 0 && destination == 0),
        InvalidArgument,
        "{field} is missing: a first {name} is given, and 0 {name}s mean all"
    );
    Ok((count > 0).then_some(PairedRange { source, destination, count }))
}
