// SPDX-License-Identifier: Apache-2.0
//! Building layouts.

use std::sync::Arc;

use crate::base::{Result, ensure};
use crate::ffi::agent::{kvmem_agent, kvmem_registration};
use crate::ffi::common::handle::{Out, borrow, borrow_each, borrow_nullable};
use crate::ffi::common::{
    Scope, call, check_flags, check_reserved, ensure_given, kvmem_error, kvmem_status, not_one_of, options,
    read,
};
use crate::ffi::layout::config::{kvmem_layout_config, shape};
use crate::ffi::layout::kvmem_layout;
use crate::ffi::region::device::{device_config, kvmem_device_options};
use crate::ffi::region::disk::{disk_config, kvmem_disk_options};
use crate::ffi::region::elastic::{elastic_config, kvmem_elastic_options};
use crate::ffi::region::kvmem_region;
use crate::ffi::region::pinned::{kvmem_pinned_options, pinned_config};
use crate::ffi::region::system::{kvmem_system_options, system_config};
use crate::layout::{AllocationConfig, Geometry, Layout, LayoutSource};

/// Allocate one range for all regions, as allocation_size of kvmem_layout_requirements describes.
pub const KVMEM_LAYOUT_ALLOCATE: u32 = 1;
/// Use regions of the caller. With an agent, each is registered with it. If one is a view of an elastic
/// region, of objects or of block storage, the region that it is a part of is registered instead. The caller
/// commits and decommits an elastic region. It must start at an extent, and the size of an extent must be a
/// multiple of the block stride, so that no block spans two extents. An object has the bytes of at most one
/// block.
pub const KVMEM_LAYOUT_REGIONS: u32 = 2;
/// Use regions that are registered, all with one agent.
pub const KVMEM_LAYOUT_REGISTRATIONS: u32 = 3;

/// Options of kvmem_layout_build.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_layout_options {
    /// sizeof(kvmem_layout_options)
    pub struct_size: usize,
    /// Shape.
    pub config: *const kvmem_layout_config,
    /// KVMEM_LAYOUT_ALLOCATE, KVMEM_LAYOUT_REGIONS or KVMEM_LAYOUT_REGISTRATIONS.
    pub source: u32,
    /// Must be 0.
    pub reserved: u32,
    /// KVMEM_LAYOUT_REGIONS: the regions: one, or one per layer for KVMEM_ORDER_LAYER_SEPARATE, or one per
    /// index of the axes before '/' in the order, of which the last varies fastest.
    pub regions: *const *mut kvmem_region,
    /// KVMEM_LAYOUT_REGISTRATIONS: in the order of the regions.
    pub registrations: *const *mut kvmem_registration,
    /// Number of regions or registrations.
    pub count: usize,
    /// KVMEM_LAYOUT_ALLOCATE: host memory, with size 0. Set one of system, disk, pinned, device and elastic.
    pub system: *const kvmem_system_options,
    /// KVMEM_LAYOUT_ALLOCATE: page-locked host memory, with size 0.
    pub pinned: *const kvmem_pinned_options,
    /// KVMEM_LAYOUT_ALLOCATE: GPU memory to allocate, with size 0.
    pub device: *const kvmem_device_options,
    /// KVMEM_LAYOUT_ALLOCATE: GPU memory that grows and shrinks, with size and extent_size 0. No block has
    /// memory until kvmem_layout_resize. The block stride is padded so that no block spans two extents.
    pub elastic: *const kvmem_elastic_options,
    /// KVMEM_LAYOUT_ALLOCATE: a file to create or open, with size 0. A named file ends with a fingerprint of
    /// the layout, which is checked when the file is opened again; see docs/files.md.
    pub disk: *const kvmem_disk_options,
    /// Agent that registers the regions: peers, objects and block storage need one; NULL for none.
    pub agent: *mut kvmem_agent,
    /// Must be 0.
    pub flags: u64,
}
options!(kvmem_layout_options);

/// Builds a layout. All is checked before anything is allocated or registered. A failure changes nothing.
///
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the shape is invalid; the options do not fit the source; the number
///           of regions is wrong; or regions differ in kind, overlap, are not aligned, or of another agent
///         KVMEM_STATUS_OUT_OF_RANGE: a region is too small
///         KVMEM_STATUS_INVALID_STATE: a registration was deregistered
///         KVMEM_STATUS_CORRUPT: the file exists and has no fingerprint of a layout
///         KVMEM_STATUS_VERSION_MISMATCH: the fingerprint has a version that this library cannot read
///         any status of kvmem_region_register, and of the kvmem_region_create_* of the memory. For an
///           existing file, KVMEM_STATUS_INVALID_ARGUMENT: it contains another layout, or it is empty and
///           KVMEM_DISK_OPEN_EXISTING is set
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_build(
    options: *const kvmem_layout_options,
    layout: *mut *mut kvmem_layout,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| {
        let (layout, options) = (Out::new(layout, "layout")?, read(options)?);
        layout.set(build(scope, &options)?.into());
        Ok(())
    })
}

/// Allocates memory for the first blocks of an elastic layout and frees that of the others, in whole extents.
/// Addresses, strides and block ids do not change.
///
/// @param layout a layout that was built with elastic options
/// @param num_blocks blocks in use, 0 to num_blocks of the layout
/// @return KVMEM_STATUS_OUT_OF_RANGE: the layout has fewer blocks
///         KVMEM_STATUS_INVALID_STATE: the layout is not elastic
///         KVMEM_STATUS_BUSY: a transfer or share uses memory to be freed, or an agent deregisters it
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_layout_resize(
    layout: *mut kvmem_layout,
    num_blocks: u64,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |scope| borrow(scope, layout)?.resize(num_blocks))
}

/// # Safety
/// Every pointer in the options must be NULL or valid.
unsafe fn build(scope: &Scope<'_>, options: &kvmem_layout_options) -> Result<Arc<Layout>> {
    check_flags("kvmem_layout_options", options.flags, 0)?;
    check_reserved("kvmem_layout_options", options.reserved)?;
    let (has_config, has_source) = (!options.config.is_null(), options.source != 0);
    ensure_given("kvmem_layout_options", &[("config", has_config), ("source", has_source)])?;
    // SAFETY: the caller's promise, for all below.
    unsafe {
        let (dimensions, arrangement) = shape(&read(options.config)?)?;
        let agent = borrow_nullable(scope, options.agent).map_err(|error| error.context("agent"))?;
        let agent = agent.map(|named| named.agent.clone());
        ensure_only_fields_of_source(options)?;
        let geometry = Geometry::new(dimensions, arrangement)?;
        let source = match options.source {
            KVMEM_LAYOUT_ALLOCATE => LayoutSource::Allocate(allocation(options)?),
            KVMEM_LAYOUT_REGIONS => {
                let regions = borrow_each(scope, options.regions, options.count, "regions")?;
                LayoutSource::Regions(regions.into_iter().map(|region| Arc::clone(region)).collect())
            }
            _ => {
                let registrations =
                    borrow_each(scope, options.registrations, options.count, "registrations")?;
                LayoutSource::Registrations(registrations.into_iter().cloned().collect())
            }
        };
        Layout::build(geometry, source, agent)
    }
}

/// Fails if the caller sets a field that the memory source ignores, because that is an error of the caller.
fn ensure_only_fields_of_source(options: &kvmem_layout_options) -> Result<()> {
    let source = match options.source {
        KVMEM_LAYOUT_ALLOCATE => "KVMEM_LAYOUT_ALLOCATE",
        KVMEM_LAYOUT_REGIONS => "KVMEM_LAYOUT_REGIONS",
        KVMEM_LAYOUT_REGISTRATIONS => "KVMEM_LAYOUT_REGISTRATIONS",
        other => {
            return Err(not_one_of("source", other, "KVMEM_LAYOUT_ALLOCATE, _REGIONS or _REGISTRATIONS"));
        }
    };
    let given = [
        ("system", !options.system.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("disk", !options.disk.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("pinned", !options.pinned.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("device", !options.device.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("elastic", !options.elastic.is_null(), KVMEM_LAYOUT_ALLOCATE),
        ("regions", !options.regions.is_null(), KVMEM_LAYOUT_REGIONS),
        ("registrations", !options.registrations.is_null(), KVMEM_LAYOUT_REGISTRATIONS),
    ];
    for (name, is_given, taken_by) in given {
        ensure!(
            !is_given || options.source == taken_by,
            InvalidArgument,
            "{name} is given, which {source} does not use; set it to NULL"
        );
    }
    ensure!(
        options.count == 0 || options.source != KVMEM_LAYOUT_ALLOCATE,
        InvalidArgument,
        "count is {}, which {source} does not use; set it to 0",
        options.count
    );
    Ok(())
}

/// # Safety
/// As for [`build`].
unsafe fn allocation(options: &kvmem_layout_options) -> Result<AllocationConfig> {
    let given = [
        options.system.is_null(),
        options.disk.is_null(),
        options.pinned.is_null(),
        options.device.is_null(),
        options.elastic.is_null(),
    ];
    let given = given.iter().filter(|is_null| !**is_null).count();
    ensure!(
        given == 1,
        InvalidArgument,
        "KVMEM_LAYOUT_ALLOCATE needs one of system, disk, pinned, device and elastic options, {given} are given"
    );
    // SAFETY: the caller's promise.
    unsafe {
        if !options.system.is_null() {
            let options = read(options.system)?;
            ensure_computed("size of kvmem_system_options", options.size)?;
            return system_config(&options).map(AllocationConfig::System);
        }
        if !options.disk.is_null() {
            let options = read(options.disk)?;
            ensure_computed("size of kvmem_disk_options", options.size)?;
            return disk_config(&options).map(AllocationConfig::Disk);
        }
        if !options.elastic.is_null() {
            let options = read(options.elastic)?;
            ensure_computed("extent_size of kvmem_elastic_options", options.extent_size)?;
            ensure_computed("size of kvmem_elastic_options", options.size)?;
            return elastic_config(&options).map(AllocationConfig::Elastic);
        }
        if !options.pinned.is_null() {
            let options = read(options.pinned)?;
            ensure_computed("size of kvmem_pinned_options", options.size)?;
            return pinned_config(&options).map(AllocationConfig::Pinned);
        }
        let options = read(options.device)?;
        ensure_computed("size of kvmem_device_options", options.size)?;
        device_config(&options).map(AllocationConfig::Device)
    }
}

fn ensure_computed(field: &str, value: u64) -> Result<()> {
    ensure!(value == 0, InvalidArgument, "{field} is {value}, and the layout computes it; set it to 0");
    Ok(())
}
