// SPDX-License-Identifier: Apache-2.0
//! What a region has to do with other processes: who holds it, and, for one that was imported, whose it is.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::deferred_free::{free_later, sweep};
use super::{Access, Backing, Control, DeviceMemory, DeviceUsers, FileId, FilePart, Origin, Region, Tier};
use crate::error::{Result, ensure};
use crate::process::PerProcess;
use crate::sync::{Mutex, MutexGuard};

/// What an opening wants of a region.
pub struct OpenRequirements {
    /// The control block that came with the share.
    pub control: FileId,
    /// The file that came as its memory; `None` for memory that is no file.
    pub file: Option<FileId>,
    /// What to do with it.
    pub access: Access,
    /// What its address is to be a multiple of, a power of two.
    pub alignment: u64,
    /// The device it is to be page-locked for.
    pub pin: Option<i32>,
    /// The devices whose kernels are to reach device memory, besides the one that it is located on.
    pub users: DeviceUsers,
    /// Its extents, each with its word in the control block.
    pub extents: Vec<(usize, u32)>,
}

/// Who holds a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// All in this process that keep it: handles, views, layouts, registrations, shares, transfers.
    pub references: u64,
    /// Views of it.
    pub views: u64,
    /// Agents it is registered with.
    pub registrations: u64,
    /// Shares of it that were not destroyed.
    pub shares: u64,
    /// How often other processes have it open.
    pub importers: u64,
    /// Handles that the caller was given.
    pub handles: u64,
}

impl Region {
    /// A region made of another process's memory; where another thread has meanwhile opened one that serves as well,
    /// that one.
    pub fn imported(
        backing: Backing,
        origin: Origin,
        control: Arc<Control>,
        wanted: &OpenRequirements,
    ) -> Arc<Self> {
        let id = control.id();
        let region = Self::with(backing, Some(origin), control.into());
        loop {
            // Compared without the lock, which every other share of the process needs: that asks the kernel about
            // files of other processes.
            let seen = known().of(&id);
            if let Some(first) = seen.iter().find(|open| open.satisfies(wanted)) {
                return first.clone();
            }
            if known().add_after(id, &region, &seen) {
                return region;
            }
        }
    }

    /// A region of a control block's id that this process has, its own or opened, and that serves.
    pub fn known(id: &[u8; 16], wanted: &OpenRequirements) -> Option<Arc<Self>> {
        let open = known().of(id);
        open.into_iter().find(|region| region.satisfies(wanted))
    }

    /// Whether an opening can be given this region: with other rights, with extents that the one here does not have, or
    /// page-locked where this one is not, it must be opened anew. The original serves in any case; another's memory
    /// under its id never does.
    fn satisfies(&self, wanted: &OpenRequirements) -> bool {
        let is_it = self.control.get().is_some_and(|control| control.file_id() == wanted.control)
            && wanted.file.is_none_or(|file| {
                let own = self.memory_file().map(|part| FileId::of(part.file));
                own.is_some_and(|own| own.is_ok_and(|own| own == file))
            });
        let Some(origin) = &self.origin else { return is_it };
        let pinned =
            |ordinal| matches!(&self.backing, Backing::Pinned(memory) if memory.ordinal() == ordinal);
        let is_host = matches!(&self.backing, Backing::System(_) | Backing::Pinned(_));
        is_it
            && origin.access == wanted.access
            && wanted.pin.is_none_or(|ordinal| !is_host || pinned(ordinal))
            && self.elastic_memory().is_none_or(|memory| memory.has(&wanted.extents))
            && self.is_mapped_for(wanted.users.device())
            && self.is_placed_at(wanted.alignment)
    }

    /// The driver places memory opened by its IPC handle, and would place it no better a second time.
    fn is_placed_at(&self, alignment: u64) -> bool {
        let is_fixed = matches!(&self.backing, Backing::Device(memory)
            if matches!(**memory, DeviceMemory::Imported(_)));
        is_fixed || self.address().is_multiple_of(alignment)
    }

    /// Memory opened by its IPC handle is mapped for one device. All other can be opened for more devices later.
    fn is_mapped_for(&self, user: Option<i32>) -> bool {
        match &self.backing {
            Backing::Device(memory) => match &**memory {
                DeviceMemory::Imported(_) => memory.user() == user.unwrap_or(memory.ordinal()),
                _ => true,
            },
            _ => true,
        }
    }

    /// The part of a file that its memory is.
    pub(super) fn memory_file(&self) -> Option<FilePart<'_>> {
        match &self.backing {
            Backing::System(memory) => memory.file(),
            Backing::Pinned(memory) => memory.memory().file(),
            Backing::Adopted(memory) => memory.file(),
            Backing::Disk(file) => Some(FilePart { file: file.fd(), offset: 0 }),
            _ => None,
        }
    }

    /// The control block that its importers share; made when it is first shared.
    pub fn control(&self) -> Result<&Arc<Control>> {
        match &self.backing {
            Backing::View { parent, .. } => parent.control(),
            _ => self.control.get_or_try_init(|| Control::create(0).map(Arc::new)),
        }
    }

    /// Which memory it is, for all processes that have it; `None` where it was never shared. Regions of one id are the
    /// same bytes, also where they are mapped at other addresses.
    pub fn shared_id(&self) -> Option<[u8; 16]> {
        self.control.get().map(|control| control.id())
    }

    /// Where it comes from, if another process owns it.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.backing {
            Backing::View { parent, .. } => parent.origin(),
            _ => self.origin.as_ref(),
        }
    }

    /// Refuses a region whose owner has freed it, or has ended. What is mapped here stays readable all the same.
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

    /// How often what lies behind its addresses has changed.
    pub fn generation(&self) -> u64 {
        if self.tier() == Tier::Elastic {
            self.control().map_or(0, |control| control.generation())
        } else {
            0
        }
    }

    /// Who holds it; for a view, who holds the view.
    pub fn holders(self: &Arc<Self>) -> Result<Holders> {
        sweep();
        Ok(Holders {
            references: Arc::strong_count(self) as u64,
            views: self.counts.views.load(Ordering::Relaxed),
            registrations: self.registrations().len() as u64,
            shares: self.counts.shares.load(Ordering::Relaxed),
            importers: self.control.get().map_or(Ok(0), |control| control.importers())?,
            handles: self.counts.handles.load(Ordering::Relaxed),
        })
    }
}

/// A region on its way to another process.
pub struct SharedRegion(Arc<Region>);

impl SharedRegion {
    /// Counts as a share of the region until it is dropped.
    pub fn new(region: &Arc<Region>) -> Result<Self> {
        sweep();
        let id = region.control()?.id();
        known().add(id, region);
        region.counts.shares.fetch_add(1, Ordering::Relaxed);
        Ok(Self(region.clone()))
    }
}

impl std::ops::Deref for SharedRegion {
    type Target = Arc<Region>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        self.0.counts.shares.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A region as the caller's handle has it: counts as a handle until it is dropped.
pub struct HandledRegion(Arc<Region>);

impl From<Arc<Region>> for HandledRegion {
    fn from(region: Arc<Region>) -> Self {
        region.counts.handles.fetch_add(1, Ordering::Relaxed);
        Self(region)
    }
}

impl std::ops::Deref for HandledRegion {
    type Target = Arc<Region>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for HandledRegion {
    fn drop(&mut self) {
        self.0.counts.handles.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What this process has shared or opened, by the id in the control block: what is opened again is the same region. A
/// process has memory mapped once, so it has one such list.
#[derive(Default)]
struct OpenRegions {
    regions: BTreeMap<[u8; 16], Vec<Weak<Region>>>,
}

fn known() -> MutexGuard<'static, OpenRegions> {
    static KNOWN: PerProcess<Mutex<OpenRegions>> = PerProcess::new();
    KNOWN.get(Mutex::default).lock()
}

impl OpenRegions {
    fn of(&self, id: &[u8; 16]) -> Vec<Arc<Region>> {
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

    /// Adds a region unless another of that id has come since those in `seen` were looked at.
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
        self.log_end();
        if let Some(control) = self.control.get() {
            control.close();
        }
        match &self.backing {
            Backing::View { parent, .. } => {
                parent.counts.views.fetch_sub(1, Ordering::Relaxed);
            }
            Backing::Device(memory) if self.origin.is_none() => {
                let open = self.control.get().filter(|control| control.may_have_importers());
                if let Some(control) = open {
                    free_later(memory, control);
                }
                sweep();
            }
            _ => {}
        }
    }
}
