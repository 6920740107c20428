// SPDX-License-Identifier: Apache-2.0
//! A region and other processes: its holders, opening shared regions again, and the owner of an imported region.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::counts::holders;
use super::deferred_free::{free_later, sweep, sweep_aside};
use super::{Backing, Control, OpenRequirements, Origin, Region};
use crate::base::{Mutex, MutexGuard, PerProcess, Result, ensure, log};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// All references in this process: handles, views, layouts, registrations, shares, transfers.
    pub references: u64,
    /// Views of it, and views of its views.
    pub views: u64,
    /// Agents it is registered with.
    pub registrations: u64,
    pub shares: u64,
    /// How often other processes have it open.
    pub importers: u64,
    pub handles: u64,
}

impl Region {
    /// A region of memory of another process, or an equivalent one that another thread has opened concurrently.
    pub fn imported(
        memory: Arc<dyn Backing>,
        origin: Origin,
        control: Arc<Control>,
        wanted: &OpenRequirements,
    ) -> Arc<Self> {
        let id = control.id();
        let region = Self::with(memory, None, Some(origin), control.into());
        loop {
            // Compared without the lock, which every other share of the process needs, because comparing makes system calls on
            // files of other processes.
            let seen = known().with_id(&id);
            if let Some(first) = seen.iter().find(|open| open.satisfies(wanted)) {
                return first.clone();
            }
            if known().add_after(id, &region, &seen) {
                return region;
            }
        }
    }

    /// A region with this id in its control block that this process has created or opened, and that satisfies the
    /// requirements.
    pub fn known(id: &[u8; 16], wanted: &OpenRequirements) -> Option<Arc<Self>> {
        let open = known().with_id(id);
        open.into_iter().find(|region| region.satisfies(wanted))
    }

    /// Whether this region satisfies the requirements: with other access, with extents that it does not have, or if page locks
    /// are missing, the share must be opened again. The original always does; other memory with its id never does.
    fn satisfies(&self, wanted: &OpenRequirements) -> bool {
        // A process that has the control block alone, or claims that the memory is of another kind, has not proved that it
        // has the memory.
        let is_it = self.control.get().is_some_and(|control| control.file_id() == wanted.control)
            && self.memory.file_id() == wanted.file;
        let is_open = |origin: &Origin| origin.access == wanted.access && self.memory.satisfies(wanted);
        is_it && self.origin.as_ref().is_none_or(is_open)
    }

    /// The control block, which is created when the region is first shared.
    pub fn control(&self) -> Result<&Arc<Control>> {
        self.root().control.get_or_try_init(|| Control::create(0).map(Arc::new))
    }

    /// The control block, if it has one.
    pub fn shared_control(&self) -> Option<&Arc<Control>> {
        self.root().control.get()
    }

    /// Identifies the memory in all processes; `None` if it was never shared. Regions with the same id contain the same bytes,
    /// also at different addresses.
    pub fn shared_id(&self) -> Option<[u8; 16]> {
        self.shared_control().map(|control| control.id())
    }

    /// Its owner, if that is another process.
    pub fn origin(&self) -> Option<&Origin> {
        self.root().origin.as_ref()
    }

    /// Fails if the owner has freed the region, or has ended. Its mapping here remains valid.
    pub fn ensure_owner_lives(&self) -> Result<()> {
        let Some(origin) = self.origin() else { return Ok(()) };
        let gone = self.control()?.owner_is_gone() || origin.process.is_gone();
        ensure!(
            !gone,
            PeerLost,
            "process {}, which shared the {} region, has freed it or has ended",
            origin.process.pid,
            self.tier().name()
        );
        Ok(())
    }

    /// The holders of the region, or of the view if it is one. Shares and importers have the whole region.
    pub fn holders(self: &Arc<Self>) -> Result<Holders> {
        sweep_aside();
        let (root, _) = Self::root_of(self);
        Ok(Holders {
            references: Arc::strong_count(self) as u64,
            views: holders(&self.counts.views),
            registrations: self.registration_count() as u64,
            shares: holders(&root.counts.shares),
            importers: root.control.get().map_or(Ok(0), |control| control.importers())?,
            handles: holders(&self.counts.handles),
        })
    }
}

/// A region that counts as a share or as a handle until this is dropped.
pub struct HeldRegion {
    region: Arc<Region>,
    _counted: Arc<()>,
}

impl HeldRegion {
    pub fn shared(region: &Arc<Region>) -> Result<Self> {
        sweep();
        let id = region.control()?.id();
        known().add(id, region);
        Ok(Self { region: region.clone(), _counted: region.counts.shares.clone() })
    }
}

/// In a handle of the caller.
impl From<Arc<Region>> for HeldRegion {
    fn from(region: Arc<Region>) -> Self {
        Self { _counted: region.counts.handles.clone(), region }
    }
}

impl std::ops::Deref for HeldRegion {
    type Target = Arc<Region>;

    fn deref(&self) -> &Self::Target {
        &self.region
    }
}

/// The regions that this process has shared or opened, by the id in their control block: opening a share again returns the
/// same region. There is one list per process, because a process maps memory once.
#[derive(Default)]
struct OpenRegions {
    regions: HashMap<[u8; 16], Vec<Weak<Region>>>,
}

fn known() -> MutexGuard<'static, OpenRegions> {
    static KNOWN: PerProcess<Mutex<OpenRegions>> = PerProcess::new();
    KNOWN.get(Mutex::default).lock()
}

impl OpenRegions {
    fn with_id(&self, id: &[u8; 16]) -> Vec<Arc<Region>> {
        self.regions.get(id).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    fn add(&mut self, id: [u8; 16], region: &Arc<Region>) {
        self.regions.retain(|_, regions| {
            regions.retain(|region| region.strong_count() > 0);
            !regions.is_empty()
        });
        let regions = self.regions.entry(id).or_default();
        if !regions.iter().any(|known| is(known, region)) {
            regions.push(Arc::downgrade(region));
        }
    }

    /// Adds a region, unless another one with this id was added after `seen` was read.
    fn add_after(&mut self, id: [u8; 16], region: &Arc<Region>, seen: &[Arc<Region>]) -> bool {
        let mut live = self.regions.get(&id).into_iter().flatten().filter(|known| known.strong_count() > 0);
        let is_unchanged = live.all(|known| seen.iter().any(|seen| is(known, seen)));
        if is_unchanged {
            self.add(id, region);
        }
        is_unchanged
    }
}

fn is(known: &Weak<Region>, region: &Arc<Region>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(region))
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.is_view() {
            log!(Trace, "region {} freed", self.log_id);
            return;
        }
        log!(Debug, "region {} freed", self.log_id);
        let control = self.control.get();
        control.into_iter().for_each(|control| control.close());
        if self.memory.waits_for_importers() && self.origin.is_none() {
            if let Some(control) = control.filter(|control| control.may_have_importers()) {
                free_later(&self.memory, control);
            }
            sweep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::region::{Access, DeviceUsers, SystemConfig};

    #[test]
    fn a_region_is_known_only_with_its_control_block_and_its_file() {
        let config = SystemConfig { size: 4096, shareable: true, ..SystemConfig::default() };
        let (region, other) = (Region::system(&config).unwrap(), Region::system(&config).unwrap());
        let _shared = HeldRegion::shared(&region).unwrap();
        let id = region.shared_id().unwrap();
        let file = |region: &Region| region.memory.file_id().unwrap();
        let control = |region: &Region| region.control().unwrap().file_id();
        let is_known = |control, file| {
            let wanted = OpenRequirements {
                control,
                file,
                access: Access::ReadWrite,
                alignment: 1,
                pin: None,
                users: DeviceUsers::Owner,
                extents: Vec::new(),
            };
            Region::known(&id, &wanted).is_some()
        };
        assert!(is_known(control(&region), Some(file(&region))));
        // As if it were device memory, whose handle nothing compares.
        assert!(!is_known(control(&region), None));
        assert!(!is_known(control(&region), Some(file(&other))));
        assert!(!is_known(control(&other), Some(file(&region))));
        assert_eq!(
            Control::open(rustix::io::dup(region.control().unwrap().readable()).unwrap(), [0; 16])
                .err()
                .unwrap()
                .status(),
            Status::Corrupt
        );
    }
}
