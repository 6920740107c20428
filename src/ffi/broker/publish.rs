// SPDX-License-Identifier: Apache-2.0
//! Publishing shares.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::ffi::broker::kvmem_broker;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::handle::borrow;
use crate::ffi::common::options::{check_flags, init, options, read_nullable};
use crate::ffi::common::pointer::out;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::common::text;
use crate::ffi::share::kvmem_share;
use crate::region::Access;
use crate::share::Published;
use crate::share::broker::TokenTerms;

/// 256 bits that nobody can guess: whoever has them may fetch. A secret, to be handed over as one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_token {
    /// The bits.
    pub bytes: [u8; 32],
}

/// What a token is good for. All zeroes but struct_size: all that the share grants, for as long as it is
/// published.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_publish_options {
    /// sizeof(kvmem_publish_options)
    pub struct_size: usize,
    /// KVMEM_SHARE_READ_ONLY: its bearer may only read, whatever the share grants. Or 0.
    pub flags: u64,
    /// How often it can be used; 0 for any number. A token that is used up is refused like a wrong one.
    pub max_uses: u64,
    /// For how long, in nanoseconds; 0 for as long as the name is published.
    pub lifetime_ns: u64,
}
options!(kvmem_publish_options);

/// Fills options with defaults.
///
/// @param options the caller's struct; NULL does nothing
/// @param struct_size sizeof(*options); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_publish_options_init(options: *mut kvmem_publish_options, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(options, struct_size) };
}

/// Offers a share under a name. While it is published the share is held, also when its handle is destroyed.
///
/// @param broker a broker
/// @param name a name that is free: 1 to 255 bytes of UTF-8
/// @param share what is offered
/// @param options what the token is good for; NULL for all that the share grants
/// @param token gets the token by which it is fetched
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_ALREADY_EXISTS for a name in use; KVMEM_STATUS_INVALID_ARGUMENT
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_publish(
    broker: *mut kvmem_broker,
    name: *const c_char,
    share: *const kvmem_share,
    options: *const kvmem_publish_options,
    token: *mut kvmem_token,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (token, options) = (out(token, "token")?, read_nullable(options)?);
            let (name, share) = (text::required(name, "name")?, borrow(scope, share)?);
            let terms = terms(options, share.manifest().access)?;
            let published = Arc::new(Published::new(share));
            let made = borrow(scope, broker)?.publish(name, published, &terms)?;
            token.write(kvmem_token { bytes: made.0 });
            Ok(())
        })
    }
}

/// Makes another token for what is published.
///
/// @param broker a broker
/// @param name what it is published as
/// @param options what the token is good for; NULL for everything
/// @param token gets the token
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when the name is not published;
///         KVMEM_STATUS_INVALID_ARGUMENT
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_grant(
    broker: *mut kvmem_broker,
    name: *const c_char,
    options: *const kvmem_publish_options,
    token: *mut kvmem_token,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe {
        call(error, |scope| {
            let (token, options) = (out(token, "token")?, read_nullable(options)?);
            let name = text::required(name, "name")?;
            let made = borrow(scope, broker)?.grant(name, &terms(options, Access::ReadWrite)?)?;
            token.write(kvmem_token { bytes: made.0 });
            Ok(())
        })
    }
}

/// Takes an offer back, and all its tokens with it. Who is being sent it just now still gets it, and what was
/// opened stays open.
///
/// @param broker a broker
/// @param name what it is published as
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_NOT_FOUND when the name is not published
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_broker_unpublish(
    broker: *mut kvmem_broker,
    name: *const c_char,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: by contract.
    unsafe { call(error, |scope| borrow(scope, broker)?.unpublish(text::required(name, "name")?)) }
}

fn terms(options: Option<kvmem_publish_options>, granted: Access) -> Result<TokenTerms> {
    let Some(options) = options else {
        return Ok(TokenTerms { access: granted, max_uses: 0, lifetime: None });
    };
    check_flags("kvmem_publish_options", options.flags, crate::ffi::share::create::KVMEM_SHARE_READ_ONLY)?;
    Ok(TokenTerms {
        access: if options.flags == 0 { granted } else { Access::Read },
        max_uses: options.max_uses,
        lifetime: (options.lifetime_ns > 0).then(|| Duration::from_nanos(options.lifetime_ns)),
    })
}
