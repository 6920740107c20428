// SPDX-License-Identifier: Apache-2.0
//! Building a local layout.

use std::sync::Arc;

use super::geometry::Geometry;
use super::memory::{LocalMemory, Memory};
use super::placement::Placement;
use super::whole_blocks::ensure_whole_blocks;
use super::whole_objects::ensure_whole_objects;
use super::{Layout, extents, fingerprint};
use crate::base::{Count, Result, ensure, fail, lists};
use crate::nixl::Agent;
use crate::region::{
    self, DeviceConfig, DiskConfig, DiskFile, ElasticConfig, OwnedDevice, PinnedConfig, Region, Registration,
    RegistrationHold, SystemConfig, extent_granularity,
};

/// The memory to allocate for the whole layout. The layout determines the size.
pub enum AllocationConfig {
    System(SystemConfig),
    Disk(DiskConfig),
    /// Page-locked host memory.
    Pinned(PinnedConfig),
    Device(DeviceConfig),
    /// Memory of a GPU that grows and shrinks; at first none is committed. The layout determines the extent size, so that no
    /// block crosses the end of an extent.
    Elastic(ElasticConfig),
}

pub enum LayoutSource {
    /// One new allocation holds all regions.
    Allocate(AllocationConfig),
    /// Regions of the caller. With an agent each is registered.
    Regions(Vec<Arc<Region>>),
    /// Regions that are already registered with one agent.
    Registrations(Vec<Arc<Registration>>),
}

impl Layout {
    /// Checks all arguments, then allocates and registers. A failure changes nothing. Without an agent the layout is local
    /// only.
    pub fn build(geometry: Geometry, source: LayoutSource, agent: Option<Arc<Agent>>) -> Result<Arc<Self>> {
        match source {
            LayoutSource::Allocate(allocation) => allocate(geometry, allocation, agent),
            LayoutSource::Regions(regions) => place(geometry, regions, agent),
            LayoutSource::Registrations(registrations) => adopt(geometry, registrations, agent),
        }
    }
}

#[cfg(test)]
impl Layout {
    /// A layout in host memory.
    pub fn in_host(dimensions: super::Dimensions, arrangement: super::Arrangement) -> Arc<Self> {
        Self::allocate(dimensions, arrangement, AllocationConfig::System(SystemConfig::default())).unwrap()
    }

    /// A local layout in one new allocation.
    pub fn allocate(
        dimensions: super::Dimensions,
        arrangement: super::Arrangement,
        allocation: AllocationConfig,
    ) -> Result<Arc<Self>> {
        Self::build(Geometry::new(dimensions, arrangement)?, LayoutSource::Allocate(allocation), None)
    }

    /// A local layout in regions of the caller.
    pub fn place(
        dimensions: super::Dimensions,
        arrangement: super::Arrangement,
        regions: Vec<Arc<Region>>,
    ) -> Result<Arc<Self>> {
        Self::build(Geometry::new(dimensions, arrangement)?, LayoutSource::Regions(regions), None)
    }
}

fn allocate(
    geometry: Geometry,
    allocation: AllocationConfig,
    agent: Option<Arc<Agent>>,
) -> Result<Arc<Layout>> {
    let (base, placement) = memory_of(geometry, allocation)?;
    let region_size = placement.geometry().region_size();
    let regions = placement.bases().iter().map(|start| part(&base, start - base.address(), region_size));
    let regions = lists::collect_each(regions)?;
    let holds =
        agent.iter().map(|agent| Registration::create(&base, agent)?.hold()).collect::<Result<Vec<_>>>()?;
    base.file().into_iter().for_each(DiskFile::keep);
    let elastic_base = base.elastic_memory().is_some().then_some(base);
    finish(placement, regions, holds, agent, elastic_base)
}

/// A temporary file can never be opened again, and needs no fingerprint. The file of a store has one of its own.
fn labelled(config: DiskConfig, geometry: &Geometry) -> Result<DiskConfig> {
    let is_missing = config.path.is_some() && config.label.is_none();
    let label = is_missing.then(|| fingerprint::label(geometry)).transpose()?;
    Ok(DiskConfig { label: config.label.or(label), ..config })
}

/// Mapped memory starts at a page boundary, and a file at 0. No machine has smaller pages.
const PAGE: u64 = 4096;

fn memory_of(geometry: Geometry, allocation: AllocationConfig) -> Result<(Arc<Region>, Placement)> {
    let start_alignment = match &allocation {
        AllocationConfig::Device(_) => OwnedDevice::START_ALIGNMENT,
        _ => PAGE,
    };
    let size = geometry.allocation_size(start_alignment)?;
    let base = match allocation {
        AllocationConfig::System(config) => Region::system(&SystemConfig { size, ..config })?,
        AllocationConfig::Disk(config) => {
            Region::disk_unkept(&labelled(DiskConfig { size, ..config }, &geometry)?)?
        }
        AllocationConfig::Pinned(config) => {
            Region::pinned(&PinnedConfig { size, ..config }, &mut |_, _| true)?
        }
        AllocationConfig::Device(config) => {
            Region::new(OwnedDevice::allocate(&DeviceConfig { size, ..config })?)
        }
        AllocationConfig::Elastic(config) => return elastic(geometry, config),
    };
    let placement = Placement::within(geometry, base.address())?;
    Ok((base, placement))
}

fn elastic(geometry: Geometry, config: ElasticConfig) -> Result<(Arc<Region>, Placement)> {
    let granularity = extent_granularity(config.ordinal)?;
    let (geometry, extent_size) = extents::fit(geometry.dimensions(), geometry.arrangement(), granularity)?;
    let size = extents::reserved_size(&geometry, extent_size)?;
    let alignment = geometry.dimensions().alignment;
    let base = Region::elastic(&ElasticConfig { size, extent_size, alignment, ..config })?;
    let placement = extents::place(geometry, base.address(), extent_size)?;
    Ok((base, placement))
}

/// A view of the allocation; the allocation itself if the part is all of it.
fn part(base: &Arc<Region>, offset: u64, size: u64) -> Result<Arc<Region>> {
    if offset == 0 && size == base.size() { Ok(base.clone()) } else { Region::view(base, offset, size) }
}

fn place(geometry: Geometry, regions: Vec<Arc<Region>>, agent: Option<Arc<Agent>>) -> Result<Arc<Layout>> {
    let placement = check(geometry, &regions)?;
    finish_registered(placement, regions, agent)
}

pub(super) fn finish_registered(
    placement: Placement,
    regions: Vec<Arc<Region>>,
    agent: Option<Arc<Agent>>,
) -> Result<Arc<Layout>> {
    let holds = agent.iter().flat_map(|agent| regions.iter().map(move |region| registered(region, agent)));
    let holds = lists::collect_each(holds)?;
    finish(placement, regions, holds, agent, None)
}

/// Registers a region, or holds its registration. For a view of memory that is registered as a whole, that is registered.
pub(super) fn registered(region: &Arc<Region>, agent: &Arc<Agent>) -> Result<RegistrationHold> {
    let region = if region.is_registered_whole() { Region::root_of(region).0 } else { region };
    Registration::hold_or_create(region, agent)
}

fn adopt(
    geometry: Geometry,
    registrations: Vec<Arc<Registration>>,
    agent: Option<Arc<Agent>>,
) -> Result<Arc<Layout>> {
    let regions = lists::collect(registrations.iter().map(|registration| registration.region().clone()))?;
    let placement = check(geometry, &regions)?;
    let agent = agent.unwrap_or_else(|| registrations[0].agent().clone());
    let hold = |(index, registration): (usize, &Arc<Registration>)| {
        ensure!(
            Arc::ptr_eq(registration.agent(), &agent),
            InvalidArgument,
            "region {index} of {} is registered with agent '{}', the layout is for agent '{}'",
            registrations.len(),
            registration.agent().name(),
            agent.name()
        );
        registration
            .hold()
            .map_err(|error| error.context(format!("region {index} of {}", registrations.len())))
    };
    let holds = lists::collect_each(registrations.iter().enumerate().map(hold))?;
    finish(placement, regions, holds, Some(agent), None)
}

fn finish(
    placement: Placement,
    regions: Vec<Arc<Region>>,
    holds: Vec<RegistrationHold>,
    agent: Option<Arc<Agent>>,
    elastic_base: Option<Arc<Region>>,
) -> Result<Arc<Layout>> {
    let tier = regions[0].tier();
    let size = placement.geometry().region_size();
    let descriptor = |region: &Arc<Region>| crate::nixl::Descriptor { size, ..region.descriptor() };
    let descriptors = lists::collect(regions.iter().map(descriptor))?;
    Ok(Layout::new(
        placement,
        Memory::Local(LocalMemory { regions, descriptors, holds, tier, agent, elastic_base }),
    ))
}

fn check(geometry: Geometry, regions: &[Arc<Region>]) -> Result<Placement> {
    let count = geometry.num_regions();
    ensure!(
        regions.len() == count,
        InvalidArgument,
        "the number of regions is {}, and the order '{}' needs {count}: {}{}",
        regions.len(),
        geometry.order(),
        needed_regions(&geometry),
        advice_on_number(regions)
    );
    for (index, region) in regions.iter().enumerate() {
        // Before the sizes, because it says which size objects must have.
        ensure_whole_objects(&geometry, region)
            .map_err(|error| error.context(format!("region {index} of {count}")))?;
        ensure!(
            region.size() >= geometry.region_size(),
            OutOfRange,
            "region {index} of {count} {}",
            shortage(region, geometry.region_size())
        );
        ensure!(
            region.tier() == regions[0].tier(),
            InvalidArgument,
            "region 0 is {} memory and region {index} is {}; all regions must be on one tier",
            regions[0].tier().name(),
            region.tier().name()
        );
        let (first, this) = (regions[0].ordinal().unwrap_or(0), region.ordinal().unwrap_or(0));
        ensure!(
            first == this,
            InvalidArgument,
            "region 0 is located on device {first} and region {index} on device {this}; all regions must be on one device"
        );
        ensure!(
            regions[0].devices() == region.devices(),
            InvalidArgument,
            "region 0 and region {index} were opened for different devices; open all regions for one device"
        );
    }
    for (index, region) in regions.iter().enumerate() {
        ensure_whole_blocks(&geometry, region)
            .map_err(|error| error.context(format!("region {index} of {count}")))?;
    }
    ensure_disjoint(regions, geometry.region_size())?;
    Placement::new(geometry, lists::collect(regions.iter().map(|region| region.address()))?)
}

/// One region, or one per index of the axes that have separate regions.
fn needed_regions(geometry: &Geometry) -> String {
    let order = geometry.order();
    let counts: Vec<_> =
        order.in_regions().iter().map(|axis| Count(geometry.count(*axis), axis.name()).to_string()).collect();
    if counts.is_empty() {
        "all axes are in one".to_string()
    } else {
        format!("one for each of {}", counts.join(" x "))
    }
}

/// What to do if the number of regions is wrong, if there is more to say than the number.
fn advice_on_number(regions: &[Arc<Region>]) -> &'static str {
    match regions {
        [region] if region.objects().is_some() => {
            "; for one region of objects use an order without '/' and with blocks outermost, such as BLONHC, so that an object is \
             a block"
        }
        _ => "",
    }
}

/// How a region is too small for a layout that needs so many bytes of it.
fn shortage(region: &Region, needed: u64) -> String {
    let Some(objects) = region.objects() else {
        return format!("is {} bytes, the layout needs {needed}", region.size());
    };
    let size = objects.object_size();
    let (count, needed) = (region.size() / size, needed.div_ceil(size));
    format!("has {count} objects of {size} bytes, the layout needs {needed}; create it with that count")
}

pub(super) fn ensure_disjoint(regions: &[Arc<Region>], size: u64) -> Result<()> {
    match region::overlap(regions, size)? {
        None => Ok(()),
        Some((index, same)) if index == same => {
            fail!(InvalidArgument, "region {index} maps the same bytes twice, so blocks would share them")
        }
        Some((index, next)) => fail!(
            InvalidArgument,
            "regions {} and {} overlap, so blocks would share bytes; they may be two mappings of the same memory, or two \
             opens of the same file. If they are interleaved views of one buffer, give the buffer as one region, with the \
             order of its axes",
            index.min(next),
            index.max(next)
        ),
    }
}
