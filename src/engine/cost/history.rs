// SPDX-License-Identifier: Apache-2.0
//! Throughput of earlier runs of this process, for methods that no model predicts: to a peer, and from or to a
//! file. Before the first run, a usual rate is assumed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, StatxFlags};

use crate::base::{Keyed, PerProcess, retried};
use crate::layout::{Layout, Memory};
use crate::nixl::MemoryType;
use crate::run::{Record, TransferMethod};

/// Usual throughput of a method: the order of magnitude, as documented in the header. Direct I/O is limited by
/// the drive, the page cache by copies. The rates of peers were measured with UCX between two processes of
/// one machine, where GPU memory has a tenth of the throughput of host memory.
fn usual(source: &Layout, destination: &Layout) -> f64 {
    const DIRECT_FILE: f64 = 2e9;
    const CACHED_FILE: f64 = 5e9;
    const HOST_PEER: f64 = 5e9;
    const GPU_PEER: f64 = 0.5e9;
    const OBJECTS: f64 = 0.2e9;
    let sides = [source, destination];
    if sides.iter().any(|side| matches!(side.memory(), Memory::Remote(_))) {
        let has_gpu = sides.iter().any(|side| side.memory_type() == MemoryType::Vram);
        return if has_gpu { GPU_PEER } else { HOST_PEER };
    }
    if sides.iter().any(|side| side.memory_type() == MemoryType::Object) {
        return OBJECTS;
    }
    let mut files = sides.iter().flat_map(|side| side.memory().regions()).filter_map(|region| region.file());
    if files.all(|file| file.is_direct()) { DIRECT_FILE } else { CACHED_FILE }
}

/// A method, and hashes that identify source and destination by file, peer or kind of memory.
type Key = (u32, u64, u64);

/// If there are so many entries, entries that no transfer uses are dropped.
pub(super) const MAX_ENTRIES: usize = 256;

/// The runs by a method between two layouts.
pub fn record(method: TransferMethod, source: &Layout, destination: &Layout) -> Arc<Record> {
    static RECORDS: PerProcess<Keyed<Key, Record>> = PerProcess::new();
    // Before the lock, which all transfers use: a file may be on a slow file system, or another process may serve it.
    let key = (method as u32, side(source), side(destination));
    RECORDS.get(Keyed::new).get_or(key, MAX_ENTRIES, || Record::assuming(usual(source, destination)))
}

fn side(layout: &Layout) -> u64 {
    let mut hasher = DefaultHasher::new();
    match layout.memory() {
        Memory::Remote(remote) => remote.peer.name().hash(&mut hasher),
        Memory::Local(_) => match layout.memory().regions().first().and_then(|region| region.file()) {
            Some(file) => identity(file.fd()).hash(&mut hasher),
            None => (layout.memory_type() as u32).hash(&mut hasher),
        },
    }
    hasher.finish()
}

/// Identifies a file independently of its name. Distinguishes it from an earlier file with the same inode number. Does not wait for
/// the file system.
fn identity(file: BorrowedFd<'_>) -> Option<(u32, u32, u64, i64, u32)> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = retried::statx(file, c"", flags, wanted).ok()?;
    let born = stat.stx_btime;
    Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino, born.tv_sec, born.tv_nsec))
}
