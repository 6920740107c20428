// SPDX-License-Identifier: Apache-2.0
//! Pinned memory: host memory that devices reach by DMA.
//!
//! cuMemHostAlloc touches its pages with one thread. Here the memory is mapped, placed near the device, touched by
//! several threads and then page-locked, chunk by chunk.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::system::{HugePages, SystemConfig, SystemMemory};
use crate::base::{Error, Result, Status, ensure, error, thread};
use crate::cuda::deferred::{self, Deferred};
use crate::cuda::page_lock::PageLock;
use crate::cuda::{Context, ContextIdentity, Device};
use crate::nixl::HostPages;
use crate::region::available_memory::ensure_available;
use crate::region::mapping::host_size;
use crate::region::memory_file::missing_bytes;
use crate::region::numa::NumaPlacement;
use crate::region::prefault::Prefault;
use crate::region::{
    Backing, Contexts, EqualPieces, Export, FileId, MemoryRange, OpenRequirements, Place, Properties,
    Residency, Tier,
};

/// The default size of a chunk. One page lock of half a TB fails with some drivers. A copy across the end of a page lock
/// fails with all drivers, so there are as few page locks as possible.
const CHUNK: u64 = 64 << 30;
/// The number of bytes between two progress callbacks.
const STEP: u64 = 512 << 20;
/// The default maximum number of threads; more gain little.
const MAX_THREADS: usize = 8;

/// Called after each chunk, and every 512 MiB within large chunks, with the completed and the total bytes. Returning false
/// cancels.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

#[derive(Clone, Debug, Default)]
pub struct PinnedConfig {
    pub size: u64,
    /// The device that it is page-locked for.
    pub ordinal: i32,
    /// The NUMA node it is bound to; `None` prefers the node of the device.
    pub numa_node: Option<u32>,
    /// Threads that populate its pages; 0 means the number of cores, up to 8.
    pub threads: u32,
    /// Bytes per page lock; 0 means 64 GiB.
    pub chunk: u64,
    /// Ordinary pages only.
    pub no_huge_pages: bool,
    /// It can be shared with other processes.
    pub shareable: bool,
    /// No other process can ever map it to be written. For shareable memory.
    pub write_sealed: bool,
}

/// Page-locked host memory. It is unlocked when the device has finished its work.
pub struct PinnedMemory {
    locked: Deferred<LockedMemory>,
    ordinal: i32,
    chunk_size: u64,
    fell_back: bool,
}

struct LockedMemory {
    lock: PageLock,
    memory: SystemMemory,
}

/// Adds what needs no GPU to the error for a missing driver.
pub(super) fn name_the_alternative(error: Error) -> Error {
    match error.status() {
        Status::UnavailableCuda => error.followed_by("without a GPU, allocate memory of the tier system"),
        _ => error,
    }
}

impl PinnedMemory {
    /// Allocates, or changes nothing.
    pub fn allocate(config: &PinnedConfig, progress: Progress<'_>) -> Result<Self> {
        let page = rustix::param::page_size() as u64;
        let chunk = if config.chunk == 0 { CHUNK } else { config.chunk };
        ensure!(
            chunk.is_multiple_of(page),
            InvalidArgument,
            "chunk_size is {chunk} bytes; it must be a multiple of the page size, {page}"
        );
        let device = Device::get(config.ordinal).map_err(name_the_alternative)?;
        let size = host_size("a pinned region", config.size)?;
        let numa = config.numa_node.map(NumaPlacement::Bind);
        deferred::allocate(None, || ensure_available(size as u64, numa))?;
        let memory = SystemMemory::allocate(&system_config(config, device))?;
        let lock = PageLock::new(Arc::new(Context::retain(device)?));
        Self::pinned(LockedMemory { lock, memory }, config.ordinal, chunk, |locked| {
            locked.pin(config, chunk as usize, progress)
        })
    }

    /// Page-locks memory. After a failure, what was locked is unlocked as at its end.
    fn pinned(
        mut locked: LockedMemory,
        ordinal: i32,
        chunk_size: u64,
        pin: impl FnOnce(&mut LockedMemory) -> Result<bool>,
    ) -> Result<Self> {
        let fell_back = pin(&mut locked);
        let size = locked.memory.size() as u64;
        let locked = Deferred::new(&locked.lock.context().clone(), locked, size);
        Ok(Self { locked, ordinal, chunk_size, fell_back: fell_back? })
    }

    /// Page-locks memory that another process has shared.
    pub fn lock(memory: SystemMemory, ordinal: i32, writable: bool) -> Result<Self> {
        deferred::allocate(None, || ensure_available_for(&memory))?;
        let context = Arc::new(Context::retain(Device::get(ordinal)?)?);
        let lock = if writable { PageLock::new(context) } else { PageLock::new_read_only(context)? };
        Self::pinned(LockedMemory { lock, memory }, ordinal, CHUNK, |locked| {
            let (address, size) = (locked.memory.address(), locked.memory.size());
            for offset in (0..size).step_by(CHUNK as usize) {
                locked.lock.add(address + offset, (CHUNK as usize).min(size - offset))?;
            }
            Ok(false)
        })
    }

    /// The context that the page locks belong to.
    pub fn identity(&self) -> ContextIdentity {
        self.locked.lock.identity()
    }

    pub fn memory(&self) -> &SystemMemory {
        &self.locked.memory
    }
}

impl Backing for PinnedMemory {
    fn range(&self) -> MemoryRange {
        MemoryRange {
            tier: Tier::Pinned,
            address: self.memory().address() as u64,
            size: self.memory().size() as u64,
        }
    }

    fn properties(&self) -> Properties {
        let memory = self.memory().properties();
        let fell_back = self.fell_back || memory.fell_back;
        Properties { fell_back, page_locked_for: Some(self.ordinal), ..memory }
    }

    fn mapped_files(&self) -> Vec<Place> {
        self.memory().mapped_files()
    }

    fn file_id(&self) -> Option<FileId> {
        self.memory().file_id()
    }

    fn export(&self) -> Result<Export<'_>> {
        self.memory().export()
    }

    fn add_contexts(&self, _memory: &mut Contexts, page_locks: &mut Contexts) {
        page_locks.add(self.identity());
    }

    fn satisfies(&self, wanted: &OpenRequirements) -> bool {
        wanted.pin.is_none_or(|ordinal| ordinal == self.ordinal)
            && self.address().is_multiple_of(wanted.alignment)
    }

    fn host_pages(&self) -> HostPages {
        HostPages::Locked
    }

    fn residency(&self) -> Result<Residency> {
        self.memory().residency()
    }

    /// No copy of the driver may cross the end of a page lock.
    fn bytes_in_piece(&self, address: u64) -> u64 {
        EqualPieces { start: self.address(), size: self.chunk_size }.left(address)
    }
}

impl LockedMemory {
    /// Returns whether the rest got ordinary pages.
    fn pin(&mut self, config: &PinnedConfig, chunk: usize, progress: Progress<'_>) -> Result<bool> {
        let threads = if config.threads == 0 { default_threads() } else { config.threads };
        let (memory, lock) = (&self.memory, &mut self.lock);
        let (size, mut locked) = (memory.size(), 0);
        let mut population = memory.population(threads);
        if !config.no_huge_pages {
            population = population.with_fallback();
        }
        populate_ahead(population, size, chunk.min(STEP as usize), |done| {
            while locked < done && (done == size || done - locked >= chunk) {
                let length = chunk.min(size - locked);
                lock.add(memory.address() + locked, length)?;
                locked += length;
            }
            ensure!(
                progress(done as u64, size as u64),
                Cancelled,
                "pinning was cancelled after {done} of {size} bytes"
            );
            Ok(())
        })
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        // Memory that is still page-locked must stay mapped.
        if !self.lock.release() {
            self.memory.leak();
        }
    }
}

/// Populates pages, the slow part, ahead of the page locks: calls `follow` after each step with the number of populated bytes,
/// while the next step is populated. Returns whether the rest got ordinary pages.
fn populate_ahead(
    mut population: Prefault,
    size: usize,
    step: usize,
    mut follow: impl FnMut(usize) -> Result<()>,
) -> Result<bool> {
    let steps = (0..size).step_by(step).map(|offset| (offset, step.min(size - offset)));
    let (ready, populated) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let ahead = steps.clone();
        let thread = thread::spawn_scoped(scope, "kvmem-prefault", move || {
            populate_all(&mut population, ahead, &ready)
        })?;
        let mut followed = Ok(());
        for (offset, length) in steps {
            // Joining the thread returns its error.
            if populated.recv().is_err() {
                break;
            }
            followed = follow(offset + length);
            if followed.is_err() {
                break;
            }
        }
        drop(populated);
        let fell_back =
            thread.join().map_err(|_| error!(Panic, "the thread that touches pages panicked"))??;
        followed.map(|()| fell_back)
    })
}

fn populate_all(
    population: &mut Prefault,
    steps: impl Iterator<Item = (usize, usize)>,
    ready: &Sender<()>,
) -> Result<bool> {
    let mut fell_back = false;
    for (offset, length) in steps {
        fell_back |= population.populate(offset, length)?;
        // The receiver has been dropped after a failure or a cancellation.
        if ready.send(()).is_err() {
            return Ok(false);
        }
    }
    Ok(fell_back)
}

/// Fails for shared memory without all its pages if memory for the others is not available: page-locking allocates them,
/// and the sender may claim any size. Reserved huge pages were reserved when they were mapped.
fn ensure_available_for(memory: &SystemMemory) -> Result<()> {
    let Some(file) = memory.file() else { return Ok(()) };
    if memory.page_size() > rustix::param::page_size() as u64 {
        return Ok(());
    }
    let missing = missing_bytes(file.part().file, memory.size() as u64)?;
    ensure_available(missing, None).map_err(|error| error.context("page-lock shared memory"))
}

fn system_config(config: &PinnedConfig, device: Device) -> SystemConfig {
    let bound = config.numa_node.map(NumaPlacement::Bind);
    // If the kernel does not know the driver's node, it chooses one.
    let near = || {
        device.numa_node().filter(|node| crate::region::numa::node_exists(*node)).map(NumaPlacement::Prefer)
    };
    SystemConfig {
        size: config.size,
        huge_pages: if config.no_huge_pages { HugePages::Never } else { HugePages::Transparent },
        huge_pages_required: false,
        numa: bound.or_else(near),
        prefault_threads: 0,
        shareable: config.shareable,
        write_sealed: config.write_sealed,
    }
}

fn default_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: usize = 4 << 20;

    #[test]
    fn each_step_is_followed_once_it_is_populated() {
        let config = SystemConfig { size: 2 * HALF as u64, ..Default::default() };
        let memory = SystemMemory::allocate(&config).unwrap();
        let mut steps = Vec::new();
        let fell_back = populate_ahead(memory.population(2), 2 * HALF, HALF, |done| {
            assert!(memory.residency().unwrap().resident >= done as u64);
            steps.push(done);
            Ok(())
        });
        assert!(!fell_back.unwrap());
        assert_eq!(steps, [HALF, 2 * HALF]);
    }
}
