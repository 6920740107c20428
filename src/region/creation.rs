// SPDX-License-Identifier: Apache-2.0
//! Creating regions: one function for each kind of memory, and views.

use std::sync::Arc;

use once_cell::sync::OnceCell;

use super::registration::Registrations;
use super::{
    Backing, BlockStorage, BlockStorageConfig, Control, DiskConfig, DiskFile, ElasticConfig, ElasticMemory,
    ObjectConfig, Objects, Origin, PinnedConfig, PinnedMemory, Progress, Region, SystemConfig, SystemMemory,
    View, statistics,
};
use crate::base::{LogId, Result, ensure, log};

impl Region {
    pub fn system(config: &SystemConfig) -> Result<Arc<Self>> {
        SystemMemory::allocate(config).map(Self::new)
    }

    pub fn disk(config: &DiskConfig) -> Result<Arc<Self>> {
        let region = Self::disk_unkept(config)?;
        region.file().into_iter().for_each(DiskFile::keep);
        Ok(region)
    }

    /// The same for a caller whose next steps can fail: a new file is removed with the region unless [`DiskFile::keep`] is
    /// called.
    pub fn disk_unkept(config: &DiskConfig) -> Result<Arc<Self>> {
        DiskFile::open(config).map(Self::new)
    }

    /// Allocates page-locked host memory.
    pub fn pinned(config: &PinnedConfig, progress: Progress<'_>) -> Result<Arc<Self>> {
        PinnedMemory::allocate(config, progress).map(Self::new)
    }

    /// Reserves addresses of a GPU, without memory.
    pub fn elastic(config: &ElasticConfig) -> Result<Arc<Self>> {
        let memory = ElasticMemory::reserve(config)?;
        let control = memory.control().clone().into();
        Ok(Self::with(Arc::new(memory), None, None, control))
    }

    /// Names objects of an object store. Nothing is read or written.
    pub fn objects_named(config: ObjectConfig) -> Result<Arc<Self>> {
        Objects::new(config).map(Self::new)
    }

    /// Names a part of a block device. Nothing is read or written.
    pub fn block_storage(config: BlockStorageConfig) -> Result<Arc<Self>> {
        BlockStorage::new(config).map(Self::new)
    }

    /// Creates a view: a part of a region as a region. It holds the region that the parent is a view of, not the parent.
    pub fn view(parent: &Arc<Self>, offset: u64, size: u64) -> Result<Arc<Self>> {
        ensure!(size > 0, InvalidArgument, "the size of a view is 0 bytes; it must be at least 1");
        let inside = offset.checked_add(size).is_some_and(|end| end <= parent.size());
        ensure!(
            inside,
            OutOfRange,
            "a view of {size} bytes at offset {offset} exceeds the region of {} bytes",
            parent.size()
        );
        let (root, before) = Self::root_of(parent);
        let _counted = root.counts.views.clone();
        let view = View { root: root.clone(), offset: before + offset, size, _counted };
        Ok(Self::with(root.memory.clone(), Some(view), None, OnceCell::new()))
    }

    /// A region of memory that this process has allocated, adopted or opened.
    pub fn new(memory: impl Backing + 'static) -> Arc<Self> {
        Self::with(Arc::new(memory), None, None, OnceCell::new())
    }

    pub(super) fn with(
        memory: Arc<dyn Backing>,
        view: Option<View>,
        origin: Option<Origin>,
        control: OnceCell<Arc<Control>>,
    ) -> Arc<Self> {
        let counted = view.is_none().then(|| statistics::count(memory.tier(), memory.size()));
        let mapped = origin.is_some().then(|| statistics::count_mapped(memory.size()));
        let region = Arc::new(Self {
            log_id: LogId::next(),
            _counted: counted,
            _mapped: mapped,
            counted_in: OnceCell::new(),
            memory,
            view,
            origin,
            control,
            counts: Default::default(),
            registrations: Registrations::default(),
            kept_list: OnceCell::new(),
            blocks: OnceCell::new(),
        });
        region.log_creation();
        region
    }

    /// A layout creates a view per layer, so views are logged at a lower level.
    fn log_creation(&self) {
        let (id, size, address) = (self.log_id, self.size(), self.address());
        match &self.view {
            Some(View { root, offset, .. }) => {
                log!(Trace, "region {id} created: {size} bytes at offset {offset} of region {}", root.log_id)
            }
            None => log!(
                Debug,
                "region {id} created: {}{} memory, {size} bytes at {address:#x}{}{}",
                if self.origin.is_some() { "imported " } else { "" },
                self.memory.name(),
                self.ordinal().map_or(String::new(), |ordinal| format!(", device {ordinal}")),
                self.path().map_or(String::new(), |path| format!(", file {}", path.display()))
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::region::Tier;

    fn region(size: u64) -> Arc<Region> {
        Region::system(&SystemConfig { size, ..SystemConfig::default() }).unwrap()
    }

    #[test]
    fn a_view_addresses_its_part_and_keeps_the_memory() {
        let parent = region(8192);
        let inner = Region::view(&Region::view(&parent, 4096, 4096).unwrap(), 16, 32).unwrap();
        assert_eq!((inner.address(), inner.size()), (parent.address() + 4112, 32));
        let weak = Arc::downgrade(&parent);
        drop(parent);
        assert!(weak.upgrade().is_some());
        drop(inner);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn a_view_of_views_of_any_depth_is_a_view_of_the_region() {
        let region = region(4096);
        let mut view = Region::view(&region, 0, 4096).unwrap();
        for _ in 0..100_000 {
            view = Region::view(&view, 0, 4096).unwrap();
        }
        assert_eq!(region.holders().unwrap().views, 1);
        assert_eq!((view.tier(), view.address()), (Tier::System, region.address()));
        // The stack of a thread has less than a frame per view.
        crate::base::thread::spawn("drop", move || drop(view)).unwrap().join().unwrap();
        assert_eq!(region.holders().unwrap().views, 0);
    }

    #[test]
    fn a_view_outside_its_parent_fails() {
        let parent = region(4096);
        for (offset, size) in [(0, 4097), (4096, 1), (u64::MAX, 2)] {
            Region::view(&parent, offset, size).err().unwrap().assert_is(Status::OutOfRange, "");
        }
        assert_eq!(Region::view(&parent, 0, 0).err().unwrap().status(), Status::InvalidArgument);
    }
}
