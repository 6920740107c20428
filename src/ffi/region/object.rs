// SPDX-License-Identifier: Apache-2.0
//! Regions of objects.

use std::ffi::c_char;

use crate::ffi::common::{
    call_new, check_flags, ensure_given, kvmem_error, kvmem_status, options, read, text,
};
use crate::ffi::region::kvmem_region;
use crate::region::{ObjectConfig, Region};

/// Options of kvmem_region_create_object.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_object_options {
    /// sizeof(kvmem_object_options)
    pub struct_size: usize,
    /// Prefix of all keys, UTF-8, 1 to 1014 bytes: "model/" for the keys "model/0000000000",
    /// "model/0000000001" and so on. It has no control characters. No segment before a slash is empty, "." or
    /// "..": NIXL's plugin would remove it from the key.
    pub key_prefix: *const c_char,
    /// Maximum size of an object in bytes, usually the block stride of the layout.
    pub object_size: u64,
    /// Number of objects, 1 to 2147483647; usually the number of blocks of the layout.
    pub count: u64,
    /// Must be 0.
    pub flags: u64,
}
options!(kvmem_object_options);

/// Creates a region of objects of an object store, such as an S3 bucket. The call only names them: nothing is
/// read or written, and destroying the region deletes no object.
///
/// The key of object i, from 0, is key_prefix and i as 10 decimal digits. Object i starts at offset
/// i * object_size of the region. Each object contains the bytes of one block, or of a part of one block:
/// kvmem_layout_build fails for other layouts, and names the axis that prevents it. If object_size is larger
/// than the block, the object contains only the block.
///
/// Transfers need a layout over the region that was built with an agent. The agent has a backend of NIXL's
/// plugin OBJ, which names the bucket. The other layout is in host or GPU memory, and was built with the same
/// agent. Transfers write whole objects, and may read parts. Regions with the same prefix, in this process or
/// in others, name the same objects of a bucket.
///
/// This process has no addresses of objects: they cannot be shared, exported, or mapped.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the prefix is missing, too long, not UTF-8, or has a segment or
///           character that keys cannot have; object_size or count is 0 or too large (2^63 - 1 bytes in all)
///
/// Notes: requests address objects by device ids, which the process numbers from 2^48: do not register raw
/// descriptors of objects with such ids. Registering a region registers all of its objects, also for a layout
/// over a view: an agent keeps about 600 bytes per object, and deregisters them when nothing uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_region_create_object(
    options: *const kvmem_object_options,
    region: *mut *mut kvmem_region,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (region, "region"), |_| {
        let options = read(options)?;
        check_flags("kvmem_object_options", options.flags, 0)?;
        let given = [
            ("key_prefix", !options.key_prefix.is_null()),
            ("object_size", options.object_size != 0),
            ("count", options.count != 0),
        ];
        ensure_given("kvmem_object_options", &given)?;
        let prefix = text::required(options.key_prefix, "key_prefix")?.to_string();
        let config = ObjectConfig { prefix, object_size: options.object_size, count: options.count };
        Ok(Region::objects_named(config)?.into())
    })
}
