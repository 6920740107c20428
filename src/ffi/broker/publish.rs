// SPDX-License-Identifier: Apache-2.0
//! Publishing shares.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Result;
use crate::ffi::broker::kvmem_broker;
use crate::ffi::common::{
    borrow, call, call_out, check_flags, kvmem_error, kvmem_status, options, read_nullable, text,
};
use crate::ffi::share::kvmem_share;
use crate::region::Access;
use crate::share::Published;
use crate::share::broker::TokenTerms;

/// 256 random bits, with which a client fetches a share. Transmit them as a secret.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_token {
    /// The bits.
    pub bytes: [u8; 32],
}

/// The token grants read access only, whatever the share grants.
pub const KVMEM_PUBLISH_READ_ONLY: u64 = 1;

/// What a token grants.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_publish_options {
    /// sizeof(kvmem_publish_options)
    pub struct_size: usize,
    /// KVMEM_PUBLISH_READ_ONLY; 0 grants all that the share grants.
    pub flags: u64,
    /// Number of fetches that the token permits; 0 for no limit. A used-up one is denied like a wrong one.
    pub max_uses: u64,
    /// Nanoseconds that the token is valid; 0 for as long as the name is published.
    pub lifetime_ns: u64,
}
options!(kvmem_publish_options);

/// Publishes a share under a name, and returns a token for fetching it. The broker keeps the share alive
/// while it is published, even if its handle is destroyed.
///
/// @param name a name that this broker does not publish yet, 1 to 255 bytes of UTF-8
/// @return KVMEM_STATUS_ALREADY_EXISTS: the name is in use
///         KVMEM_STATUS_INVALID_ARGUMENT: the name is empty, too long or not UTF-8
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_publish(
    broker: *mut kvmem_broker,
    name: *const c_char,
    share: *const kvmem_share,
    options: *const kvmem_publish_options,
    token: *mut kvmem_token,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (token, "token"), |scope| {
        let options = read_nullable(options)?;
        let (name, share) = (text::required(name, "name")?, borrow(scope, share)?);
        let terms = terms(options, share.manifest().access)?;
        let published = Arc::new(Published::new(share));
        let made = borrow(scope, broker)?.publish(name, published, &terms)?;
        Ok(kvmem_token { bytes: made.0 })
    })
}

/// Returns another token for a published share.
///
/// @return KVMEM_STATUS_NOT_FOUND: the name is not published
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_grant(
    broker: *mut kvmem_broker,
    name: *const c_char,
    options: *const kvmem_publish_options,
    token: *mut kvmem_token,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_out(error, (token, "token"), |scope| {
        let options = read_nullable(options)?;
        let name = text::required(name, "name")?;
        let made = borrow(scope, broker)?.grant(name, &terms(options, Access::ReadWrite)?)?;
        Ok(kvmem_token { bytes: made.0 })
    })
}

/// Withdraws a published share and its tokens. Fetches in progress complete; what was opened stays open.
///
/// @return KVMEM_STATUS_NOT_FOUND: the name is not published
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_unpublish(
    broker: *mut kvmem_broker,
    name: *const c_char,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, broker)?.unpublish(text::required(name, "name")?))
}

fn terms(options: Option<kvmem_publish_options>, granted: Access) -> Result<TokenTerms> {
    let Some(options) = options else {
        return Ok(TokenTerms { access: granted, max_uses: 0, lifetime: None });
    };
    check_flags("kvmem_publish_options", options.flags, KVMEM_PUBLISH_READ_ONLY)?;
    Ok(TokenTerms {
        access: if options.flags == 0 { granted } else { Access::Read },
        max_uses: options.max_uses,
        lifetime: (options.lifetime_ns > 0).then(|| Duration::from_nanos(options.lifetime_ns)),
    })
}
