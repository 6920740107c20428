// SPDX-License-Identifier: Apache-2.0
//! foyer as a store of blocks in the memory of the caller, with a C interface. A batch starts at once, and ends when its blocks are on disk, or in memory.
//! A put has foyer encode the bytes of the caller into its buffer. A get copies what foyer has decoded.

use std::ffi::{CStr, OsStr, c_char};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{copy_nonoverlapping, null_mut};
use std::slice::from_raw_parts;

use foyer::{
    BlockEngineConfig, Code, DeviceBuilder, Error, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, IoEngineConfig, Load, PsyncIoEngineConfig, RecoverMode, Result, UringIoEngineConfig,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, JoinSet};

const KEY_SIZE: usize = 32;
const FLUSHERS: usize = 4;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key([u8; KEY_SIZE]);

impl Code for Key {
    fn encode(&self, writer: &mut impl Write) -> Result<()> {
        writer.write_all(&self.0).map_err(Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> Result<Self> {
        let mut bytes = [0; KEY_SIZE];
        reader.read_exact(&mut bytes).map_err(Error::io_error)?;
        Ok(Self(bytes))
    }

    fn estimated_size(&self) -> usize {
        KEY_SIZE
    }
}

/// An address in the memory of the caller, which remains until the batch has ended.
#[derive(Clone, Copy)]
struct Address(*mut u8);

// SAFETY: the caller neither frees the memory nor uses the blocks of a batch before it has ended.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

enum Block {
    Given(Address, usize),
    Decoded(Vec<u8>),
}

impl Block {
    fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: blocks are given by a put, which reads them before it ends.
            Block::Given(address, size) => unsafe { from_raw_parts(address.0, *size) },
            Block::Decoded(bytes) => bytes,
        }
    }
}

impl Code for Block {
    fn encode(&self, writer: &mut impl Write) -> Result<()> {
        self.bytes().len().encode(writer)?;
        writer.write_all(self.bytes()).map_err(Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> Result<Self> {
        Vec::decode(reader).map(Block::Decoded)
    }

    fn estimated_size(&self) -> usize {
        size_of::<usize>() + self.bytes().len()
    }
}

pub struct Store {
    runtime: Runtime,
    cache: HybridCache<Key, Block>,
}

/// A batch: its end, or why it failed.
pub struct Batch {
    ended: JoinHandle<std::result::Result<(), String>>,
}

/// Keys with the addresses of their blocks.
struct Blocks {
    list: Vec<(Key, Address)>,
    size: usize,
}

impl Blocks {
    /// # Safety
    /// There are `count` keys and block ids, and `memory` has these blocks of `size` bytes.
    unsafe fn new(keys: *const u8, ids: *const u32, count: usize, memory: *mut u8, size: usize) -> Self {
        // SAFETY: the caller guarantees it.
        let (keys, ids) = unsafe { (from_raw_parts(keys, count * KEY_SIZE), from_raw_parts(ids, count)) };
        let keys = keys.chunks_exact(KEY_SIZE).map(|key| Key(key.try_into().expect("a key has 32 bytes")));
        // SAFETY: as above.
        let addresses = ids.iter().map(|&id| Address(unsafe { memory.add(id as usize * size) }));
        Self { list: keys.zip(addresses).collect(), size }
    }
}

async fn open(path: &OsStr, capacity: usize, buffers: usize, uring: bool) -> Result<HybridCache<Key, Block>> {
    let device = FsDeviceBuilder::new(path).with_capacity(capacity).with_direct(true).build()?;
    let calls: Box<dyn IoEngineConfig> = match uring {
        true => Box::new(UringIoEngineConfig::new().with_threads(2).with_io_depth(128)),
        false => Box::new(PsyncIoEngineConfig::new()),
    };
    let engine = BlockEngineConfig::new(device)
        .with_flushers(FLUSHERS)
        .with_reclaimers(2)
        .with_clean_block_threshold(8)
        .with_buffer_pool_size(buffers)
        .with_submit_queue_size_threshold(buffers);
    HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .with_flush_on_close(false)
        .memory(1)
        .storage()
        .with_io_engine_config(calls)
        .with_engine_config(engine)
        .with_recover_mode(RecoverMode::Quiet)
        .build()
        .await
}

async fn put(cache: HybridCache<Key, Block>, blocks: Blocks) -> std::result::Result<(), String> {
    for (key, address) in &blocks.list {
        cache.storage_writer(key.clone()).force().insert(Block::Given(*address, blocks.size));
    }
    cache.storage().wait().await;
    match blocks.list.iter().filter(|(key, _)| !cache.storage().may_contains(key)).count() {
        0 => Ok(()),
        missing => Err(format!("foyer has dropped {missing} of {} blocks", blocks.list.len())),
    }
}

async fn get(cache: HybridCache<Key, Block>, blocks: Blocks) -> std::result::Result<(), String> {
    let mut loads = JoinSet::new();
    for (key, address) in blocks.list {
        let cache = cache.clone();
        loads.spawn(async move {
            match cache.storage().load(&key).await {
                Ok(Load::Entry { value, .. }) => copied(&value, address, blocks.size),
                Ok(Load::Piece { piece, .. }) => copied(piece.value(), address, blocks.size),
                Ok(_) => Err("a block is not stored".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        });
    }
    while let Some(ended) = loads.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(())
}

fn copied(block: &Block, address: Address, size: usize) -> std::result::Result<(), String> {
    if block.bytes().len() != size {
        return Err(format!("a block has {} bytes instead of {size}", block.bytes().len()));
    }
    // SAFETY: the caller's block has `size` bytes, and is used by this get only.
    unsafe { copy_nonoverlapping(block.bytes().as_ptr(), address.0, size) };
    Ok(())
}

/// # Safety
/// `text` has `size` bytes, or is null.
unsafe fn explain(reason: &str, text: *mut c_char, size: usize) {
    if size > 0 && !text.is_null() {
        let length = reason.len().min(size - 1);
        // SAFETY: `length` and the final zero fit.
        unsafe {
            copy_nonoverlapping(reason.as_ptr(), text.cast(), length);
            text.add(length).write(0);
        }
    }
}

/// Opens a store of `capacity` bytes in a folder, with direct I/O. Returns null, and a text, if it fails.
///
/// # Safety
/// `path` is a string, and `text` has `text_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foyer_open(
    path: *const c_char,
    capacity: usize,
    buffers: usize,
    uring: bool,
    text: *mut c_char,
    text_size: usize,
) -> *mut Store {
    // SAFETY: the caller guarantees it.
    let path = unsafe { CStr::from_ptr(path) };
    let opened =
        Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string()).and_then(
            |runtime| {
                let opening = open(OsStr::from_bytes(path.to_bytes()), capacity, buffers, uring);
                let cache = runtime.block_on(opening).map_err(|error| error.to_string())?;
                Ok(Store { runtime, cache })
            },
        );
    match opened {
        Ok(store) => Box::into_raw(Box::new(store)),
        Err(reason) => {
            // SAFETY: as above.
            unsafe { explain(&reason, text, text_size) };
            null_mut()
        }
    }
}

/// Starts a batch of puts.
///
/// # Safety
/// The store is open. The blocks remain, and are not written, until `foyer_wait` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foyer_put(
    store: *const Store,
    keys: *const u8,
    ids: *const u32,
    count: usize,
    memory: *mut u8,
    block_size: usize,
) -> *mut Batch {
    // SAFETY: the caller guarantees it.
    let (store, blocks) = unsafe { (&*store, Blocks::new(keys, ids, count, memory, block_size)) };
    Box::into_raw(Box::new(Batch { ended: store.runtime.spawn(put(store.cache.clone(), blocks)) }))
}

/// Starts a batch of gets.
///
/// # Safety
/// The store is open. The blocks remain, and are not used, until `foyer_wait` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foyer_get(
    store: *const Store,
    keys: *const u8,
    ids: *const u32,
    count: usize,
    memory: *mut u8,
    block_size: usize,
) -> *mut Batch {
    // SAFETY: the caller guarantees it.
    let (store, blocks) = unsafe { (&*store, Blocks::new(keys, ids, count, memory, block_size)) };
    Box::into_raw(Box::new(Batch { ended: store.runtime.spawn(get(store.cache.clone(), blocks)) }))
}

/// Whether a batch has ended.
///
/// # Safety
/// `foyer_wait` was not called for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foyer_is_done(batch: *const Batch) -> bool {
    // SAFETY: the caller guarantees it.
    unsafe { &*batch }.ended.is_finished()
}

/// Waits for the end of a batch, and frees it. Returns whether it succeeded.
///
/// # Safety
/// As for `foyer_is_done`; the store is open, and `text` has `text_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foyer_wait(
    store: *const Store,
    batch: *mut Batch,
    text: *mut c_char,
    text_size: usize,
) -> bool {
    // SAFETY: the caller guarantees it.
    let (store, batch) = unsafe { (&*store, Box::from_raw(batch)) };
    match store.runtime.block_on(batch.ended).unwrap_or_else(|error| Err(error.to_string())) {
        Ok(()) => true,
        Err(reason) => {
            // SAFETY: as above.
            unsafe { explain(&reason, text, text_size) };
            false
        }
    }
}

/// Closes a store.
///
/// # Safety
/// All batches were waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn foyer_close(store: *mut Store) {
    // SAFETY: the caller guarantees it.
    let Store { runtime, cache } = *unsafe { Box::from_raw(store) };
    if let Err(error) = runtime.block_on(cache.close()) {
        eprintln!("foyer was not closed: {error}");
    }
    drop(cache);
}
