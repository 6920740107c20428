// SPDX-License-Identifier: Apache-2.0
//! Opening and creating stores.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::conversion::in_one_piece;
use super::{OpenStore, checkpoints};
use crate::base::paths::absolute;
use crate::base::{
    Error, Mutex, PerProcess, Result, SharedObjects, Status, Turns, by_deadline, ensure, error, fail,
};
use crate::layout::fingerprint;
use crate::layout::{
    AllocationConfig, Arrangement, Axis, ContentIdentity, Dimensions, Geometry, Layout, LayoutSource,
};
use crate::region::{DirectIo, DiskConfig, Label, OpenMode};
use crate::store::{Access, Durability, Identity, Policy, Store, StoreFile, StoreFolder, changed_blocks};

/// The store to open, or to create.
#[derive(Clone)]
pub struct OpenConfig {
    /// Its folder.
    pub path: PathBuf,
    /// The shape of its blocks. The number of blocks is that of the slots; 0 for that of the store, or what `max_size` has space for.
    pub dimensions: Dimensions,
    pub arrangement: Arrangement,
    /// Names and values of its identity.
    pub values: Vec<(String, Vec<u8>)>,
    /// Bytes of all slots of a new store; 0 if the number of slots is given.
    pub max_size: u64,
    pub direct_io: DirectIo,
    /// Fail if there is no store.
    pub must_exist: bool,
    pub policy: Policy,
    /// How often a store with relaxed durability becomes durable, and a reader looks what was stored.
    pub interval: Duration,
}

impl OpenStore {
    /// Opens a store, or creates it. If it is late, the store is closed when it is open.
    pub fn open(config: OpenConfig, deadline: Option<Instant>) -> Result<Arc<Self>> {
        let config = OpenConfig { path: absolute(&config.path)?, ..config };
        let doing = format!("open the store {}", config.path.display());
        // One thread of each folder may wait for a file system that does not respond.
        static OPENINGS: PerProcess<SharedObjects<PathBuf, Turns<()>>> = PerProcess::new();
        let make = || Ok(Turns::default());
        let turns =
            OPENINGS.get(SharedObjects::default).get(config.path.clone(), |_| true, deadline, make)?;
        by_deadline(&turns, deadline, &doing, move || open(&config))
    }
}

fn open(config: &OpenConfig) -> Result<Arc<OpenStore>> {
    let named = |error: Error| {
        let advice = match error.status() {
            Status::Corrupt => {
                Some("restore its files from a copy, or remove the folder to begin another store")
            }
            Status::VersionMismatch => Some(
                "open it with the version of kvmem that has made it, or begin another store in another folder",
            ),
            _ => None,
        };
        error
            .context(format!("open the store {}", config.path.display()))
            .with_advice(advice.map(str::to_string))
    };
    let is_reader = config.policy.access == Access::Read;
    let files = match is_reader {
        false => {
            // What is wrong with the options is found before a folder is made.
            let existing = match StoreFolder::read_only(&config.path) {
                Ok(files) => Store::header_in(&files).map_err(named)?,
                Err(error) if error.status() == Status::NotFound => None,
                Err(error) => return Err(error),
            };
            blocks(config, existing.map(|header| header.slots))?;
            StoreFolder::open(&config.path)?
        }
        true => StoreFolder::read_only(&config.path)?,
    };
    let header = Store::header_in(&files).map_err(named)?;
    let (geometry, identity) = blocks(config, header.as_ref().map(|header| header.slots))?;
    let exists = header.is_some();
    if let Some(header) = header {
        header.ensure_same(&identity).map_err(named)?;
        if changed_blocks(&files, &header).map_err(named)?.is_some() {
            return Err(named(error!(Corrupt, "{REPLACED}")));
        }
    }
    let num_blocks = geometry.dimensions().num_blocks;
    let store = match is_reader {
        false => Store::open_or_create(files, &identity, num_blocks, config.policy),
        true => Store::open_to_read(files, &identity, config.policy),
    };
    let store = store.map_err(named)?;
    let layout = layout(config, geometry, store.id(), exists).map_err(named)?;
    let slots = in_one_piece(&layout)?;
    let reported = store.reported(&config.path)?;
    [&layout, &slots].into_iter().for_each(|blocks| blocks.count_for(reported.runs()));
    let is_relaxed = is_reader || config.policy.durability == Durability::Relaxed;
    let store = Arc::new(store);
    let open = Arc::downgrade(&store);
    // If this thread is the last holder, the store ends on it.
    let doing = if is_reader { "read the index of a store" } else { "make a store durable" };
    let flush = move || open.upgrade().map(|store| store.flush().map_err(|error| error.context(doing)));
    let checkpoints = is_relaxed.then(|| checkpoints::start(config.interval, flush));
    Ok(Arc::new(OpenStore {
        store,
        layout,
        slots,
        namespace: Arc::default(),
        checked: Mutex::default(),
        writes: Arc::default(),
        _checkpoints: checkpoints.transpose().map_err(named)?.map(Arc::new),
        _reported: reported,
    }))
}

/// The blocks to open, of a store with so many slots or of a new one.
pub(super) fn blocks(config: &OpenConfig, existing: Option<u64>) -> Result<(Geometry, Identity)> {
    let one = Geometry::new(Dimensions { num_blocks: 1, ..config.dimensions.clone() }, config.arrangement)?;
    ensure_slots_are_contiguous(&one)?;
    ensure!(
        config.direct_io != DirectIo::Required || one.block_stride().is_multiple_of(DIRECT_UNIT),
        InvalidArgument,
        "a slot has {} bytes, and KVMEM_DISK_DIRECT_REQUIRED needs a multiple of {DIRECT_UNIT}; set alignment to 0",
        one.block_stride()
    );
    ensure!(
        existing.is_some() || !config.must_exist,
        NotFound,
        "the folder {} contains no store; open it without KVMEM_DISK_OPEN_EXISTING to create one",
        config.path.display()
    );
    let num_blocks = match (existing, config.dimensions.num_blocks) {
        (Some(slots), 0) => slots,
        (None, 0) => config.max_size / one.block_stride(),
        (_, given) => given,
    };
    ensure!(
        num_blocks > 0,
        InvalidArgument,
        "max_size is {}, less than the {} bytes of a slot; set it to the bytes of the new store, or num_blocks to its slots",
        config.max_size,
        one.block_stride()
    );
    let dimensions = Dimensions { num_blocks, ..config.dimensions.clone() };
    let geometry = Geometry::new(dimensions, config.arrangement)?;
    let values: Vec<_> =
        config.values.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let identity = Identity::new(&values, fingerprint::label(&geometry)?)?;
    Ok((geometry, identity))
}

/// What all slots are multiples of if their file bypasses the page cache: the largest unit that devices are known to have.
const DIRECT_UNIT: u64 = 4096;

/// Each slot is one range of the file, so that a block is one read, with the strides that a copy of it has in memory.
fn ensure_slots_are_contiguous(geometry: &Geometry) -> Result<()> {
    let order = geometry.order();
    ensure!(
        order.within().first() == Some(&Axis::Block) && geometry.num_regions() == 1,
        InvalidArgument,
        "the order of a store is {order}, and it must begin with B, so that a slot is one range of the file; use BLONHC"
    );
    let strides = geometry.arrangement().strides;
    if let Some(axis) = Axis::ALL.into_iter().find(|axis| strides.given(*axis).is_some()) {
        fail!(
            InvalidArgument,
            "the stride of axis {} ({}) of a store is not the tight one, and a slot is one range of the file without gaps; leave all \
             strides 0, also if those of the layouts in memory are larger",
            axis.letter(),
            axis.name()
        );
    }
    Ok(())
}

/// The layout in the file of blocks, which is empty in a new store.
///
/// The file is labelled with the id of the store, so that it is not taken for that of another one.
fn layout(config: &OpenConfig, geometry: Geometry, id: [u8; 16], exists: bool) -> Result<Arc<Layout>> {
    let identity = ContentIdentity::new(&id)?;
    let own =
        Geometry::new(Dimensions { identity, ..geometry.dimensions().clone() }, geometry.arrangement())?;
    let slot = geometry.block_stride();
    let is_direct = slot.is_multiple_of(DIRECT_UNIT);
    let label = Label { differences: ensure_own, ..fingerprint::label(&own)? };
    let disk = DiskConfig {
        path: Some(config.path.join(StoreFile::Blocks.name())),
        direct_io: if is_direct { config.direct_io } else { DirectIo::Off },
        opening: if exists { OpenMode::Existing } else { OpenMode::OpenOrCreate },
        // The folder is locked.
        no_lock: true,
        read_only: config.policy.access == Access::Read,
        label: Some(label),
        ..DiskConfig::default()
    };
    let built = Layout::build(geometry, LayoutSource::Allocate(AllocationConfig::Disk(disk)), None);
    let layout = built.map_err(|error| match error.status() {
        Status::NotFound if exists => {
            error!(Corrupt, "the file {} of the store is missing", StoreFile::Blocks.name())
        }
        Status::Corrupt | Status::OutOfRange => error!(Corrupt, "{REPLACED}"),
        _ => error,
    })?;
    ensure!(
        slot.is_multiple_of(layout.io_alignment()),
        Unsupported,
        "a slot has {slot} bytes, and direct I/O on its file system needs a multiple of {}; open the store with KVMEM_DISK_BUFFERED",
        layout.io_alignment()
    );
    Ok(layout)
}

/// Fails for the label of another file.
fn ensure_own(found: &[u8], wanted: &[u8]) -> Result<Vec<String>> {
    let different = fingerprint::differences_of_labels(found, wanted)?;
    ensure!(different.is_empty(), Corrupt, "{}", different.join(", "));
    Ok(different)
}

const REPLACED: &str = "the file blocks.0 of the store was cut or replaced";
