// SPDX-License-Identifier: Apache-2.0
//! Files in memory that record each write and sync, and what a loss of power can leave of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{BLOCK, SLOTS};
use crate::base::{Condvar, Error, Mutex, Result};
use crate::store::{Files, StoreFile};

const SECTOR: usize = 512;

#[derive(Clone, Debug)]
pub enum Operation {
    Create(StoreFile, usize),
    Write(usize, usize, Arc<[u8]>),
    SetSize(usize, usize),
    Sync(usize),
    Rename(StoreFile, StoreFile, usize),
    SyncFolder,
}

/// A call that does nothing, although it reports success: the fault that the crash test must find.
#[derive(Clone, Copy, PartialEq)]
pub enum Omitted {
    Nothing,
    Sync(StoreFile),
    SetSize(StoreFile),
    SyncFolder,
}

#[derive(Clone, Default)]
pub struct Image {
    names: BTreeMap<StoreFile, usize>,
    files: Vec<Vec<u8>>,
}

struct State {
    now: Image,
    operations: Vec<Operation>,
    omitted: Omitted,
    /// The call with this number fails with the error, and all later ones if it is set so.
    failure: Option<(usize, Errno, bool)>,
    calls: usize,
    /// No process has the store open for writing.
    has_no_writer: bool,
    /// The next sync of this file waits.
    held: Option<(StoreFile, Arc<HeldSync>)>,
    /// The next read of it finds a write in progress.
    torn: Option<StoreFile>,
}

/// A sync that waits until it is released.
#[derive(Default)]
pub struct HeldSync {
    /// Whether it has begun, and whether it may end.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl HeldSync {
    /// Waits until the sync has begun.
    pub fn wait(&self) {
        self.until(|state| state.0);
    }

    pub fn release(&self) {
        self.change(|state| state.1 = true);
    }

    fn hold(&self) {
        self.change(|state| state.0 = true);
        self.until(|state| state.1);
    }

    fn change(&self, change: impl FnOnce(&mut (bool, bool))) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    fn until(&self, is_met: impl Fn(&(bool, bool)) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        let met = self.changed.wait_while_until(self.state.lock(), Some(deadline), |state| !is_met(state));
        assert!(met.is_ok(), "the sync has not begun, or was not released");
    }
}

#[derive(Clone)]
pub struct RecordedFiles(Arc<Mutex<State>>);

/// A random generator whose runs can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % limit
    }
}

impl Image {
    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(name, file) => {
                self.file(*file);
                self.names.insert(*name, *file);
            }
            Operation::Rename(from, to, file) => {
                self.file(*file);
                if self.names.get(from) == Some(file) {
                    self.names.remove(from);
                }
                self.names.insert(*to, *file);
            }
            Operation::Write(file, offset, bytes) => {
                let file = self.file(*file);
                let end = offset + bytes.len();
                file.resize(file.len().max(end), 0);
                file[*offset..end].copy_from_slice(bytes);
            }
            Operation::SetSize(file, size) => self.file(*file).resize(*size, 0),
            Operation::Sync(_) | Operation::SyncFolder => {}
        }
    }

    fn file(&mut self, file: usize) -> &mut Vec<u8> {
        if self.files.len() <= file {
            self.files.resize_with(file + 1, Vec::new);
        }
        &mut self.files[file]
    }

    /// What may be left after the first operations: all that was synced, and of the rest each sector or not, in any order.
    pub fn after_crash(base: &Self, operations: &[Operation], random: &mut Random) -> Self {
        let mut image = base.clone();
        // Of some crashes nothing unsynced survives, of some nearly all.
        let kept = [0, 1, 2, 3, 4][random.below(5)];
        let mut unsynced = Vec::new();
        // The last sync of each file, and of the folder.
        let mut synced = BTreeMap::new();
        for (at, operation) in operations.iter().enumerate() {
            match operation {
                Operation::Sync(file) => drop(synced.insert(Some(*file), at)),
                Operation::SyncFolder => drop(synced.insert(None, at)),
                _ => {}
            }
        }
        for (at, operation) in operations.iter().enumerate() {
            let synced_at = match operation {
                Operation::Write(file, ..) | Operation::SetSize(file, _) => synced.get(&Some(*file)),
                _ => synced.get(&None),
            };
            let is_synced = synced_at.is_some_and(|synced_at| *synced_at > at);
            let is_kept = |random: &mut Random| is_synced || random.below(4) < kept;
            match operation {
                Operation::Write(file, offset, bytes) => {
                    let mut start = 0;
                    while start < bytes.len() {
                        let end = ((offset + start) / SECTOR + 1) * SECTOR - offset;
                        let end = end.min(bytes.len());
                        if is_kept(random) {
                            let part = Operation::Write(*file, offset + start, bytes[start..end].into());
                            match is_synced {
                                true => image.apply(&part),
                                false => unsynced.push(part),
                            }
                        }
                        start = end;
                    }
                }
                _ if is_kept(random) => image.apply(operation),
                _ => {}
            }
        }
        // Sectors reach the disk in any order: what was written twice since the sync may have the earlier bytes.
        while !unsynced.is_empty() {
            let next = unsynced.swap_remove(random.below(unsynced.len()));
            image.apply(&next);
        }
        image
    }
}

impl RecordedFiles {
    pub fn new(image: Image, omitted: Omitted) -> Self {
        Self(Arc::new(Mutex::new(State {
            now: image,
            operations: Vec::new(),
            omitted,
            failure: None,
            calls: 0,
            has_no_writer: false,
            held: None,
            torn: None,
        })))
    }

    pub fn empty() -> Self {
        Self::new(Image::default(), Omitted::Nothing)
    }

    pub fn operations(&self) -> Vec<Operation> {
        self.0.lock().operations.clone()
    }

    pub fn count(&self) -> usize {
        self.0.lock().operations.len()
    }

    pub fn calls(&self) -> usize {
        self.0.lock().calls
    }

    /// What is in the files now, as after a kill of the process.
    pub fn image(&self) -> Image {
        self.0.lock().now.clone()
    }

    /// Makes the call fail that is the nth from now, and all after it if `for_ever` is set.
    pub fn fail(&self, after: usize, errno: Errno, for_ever: bool) {
        let mut state = self.0.lock();
        state.failure = Some((state.calls + after, errno, for_ever));
    }

    /// Holds the next sync of a file.
    pub fn hold_sync(&self, file: StoreFile) -> Arc<HeldSync> {
        let held = Arc::new(HeldSync::default());
        self.0.lock().held = Some((file, held.clone()));
        held
    }

    /// Has the next read of a file find a write in progress.
    pub fn tear_read(&self, file: StoreFile) {
        self.0.lock().torn = Some(file);
    }

    /// The same files without one of them.
    pub fn without(&self, file: StoreFile) -> Self {
        let mut image = self.image();
        image.names.remove(&file);
        Self::new(image, Omitted::Nothing)
    }

    pub fn set_writer(&self, has_writer: bool) {
        self.0.lock().has_no_writer = !has_writer;
    }

    pub fn change(&self, file: StoreFile, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock();
        let file = state.now.names[&file];
        change(state.now.file(file));
    }

    /// Has the file of blocks the size that the layout of a new store gives it.
    pub fn fill_new_blocks(&self) {
        let mut state = self.0.lock();
        let file = state.now.names[&StoreFile::Blocks];
        if state.now.file(file).is_empty() {
            state.write(StoreFile::Blocks, SLOTS * BLOCK as u64 - 1, &[0]);
        }
    }

    pub fn write_block(&self, slot: u32, bytes: &[u8]) {
        // Blocks are written by the engines, whose failures are theirs.
        self.0.lock().write(StoreFile::Blocks, u64::from(slot) * BLOCK as u64, bytes);
    }

    pub fn read_block(&self, slot: u32) -> Vec<u8> {
        let state = self.0.lock();
        let mut block = vec![0; BLOCK];
        let file = state.now.names.get(&StoreFile::Blocks).and_then(|file| state.now.files.get(*file));
        if let Some(found) = file.and_then(|file| file.get(slot as usize * BLOCK..)) {
            let size = found.len().min(BLOCK);
            block[..size].copy_from_slice(&found[..size]);
        }
        block
    }
}

impl State {
    fn add(&mut self, operation: Operation) {
        self.now.apply(&operation);
        self.operations.push(operation);
    }

    fn write(&mut self, name: StoreFile, offset: u64, bytes: &[u8]) {
        let file = match self.now.names.get(&name) {
            Some(file) => *file,
            None => {
                let file = self.now.files.len();
                self.now.file(file);
                self.add(Operation::Create(name, file));
                file
            }
        };
        self.add(Operation::Write(file, offset as usize, bytes.into()));
    }

    fn existing(&self, name: StoreFile) -> Result<usize> {
        self.now.names.get(&name).copied().ok_or_else(|| Error::errno(name.name(), Errno::NOENT))
    }

    /// A call that can fail. A write that fails may have written a part.
    fn call(&mut self) -> Result<()> {
        self.calls += 1;
        match self.failure {
            Some((at, errno, for_ever)) if self.calls == at || (for_ever && self.calls > at) => {
                Err(Error::errno("injected", errno))
            }
            _ => Ok(()),
        }
    }
}

impl Files for RecordedFiles {
    fn size(&self, file: StoreFile) -> Result<Option<u64>> {
        let mut state = self.0.lock();
        state.call()?;
        Ok(state.existing(file).ok().map(|file| state.now.files[file].len() as u64))
    }

    fn read(&self, file: StoreFile, offset: u64, into: &mut [u8]) -> Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let is_torn = state.torn.take_if(|torn| *torn == file).is_some();
        let file = state.existing(file)?;
        let found = state.now.files[file].get(offset as usize..offset as usize + into.len());
        into.copy_from_slice(found.ok_or_else(|| Error::errno("truncated", Errno::IO))?);
        into.iter_mut().take(usize::from(is_torn)).for_each(|byte| *byte ^= 1);
        Ok(())
    }

    fn write(&self, file: StoreFile, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.0.lock();
        if let Err(error) = state.call() {
            state.write(file, offset, &bytes[..bytes.len() / 2]);
            return Err(error);
        }
        state.write(file, offset, bytes);
        Ok(())
    }

    fn set_size(&self, file: StoreFile, size: u64) -> Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let found = state.existing(file)?;
        if state.omitted != Omitted::SetSize(file) {
            state.add(Operation::SetSize(found, size as usize));
        }
        Ok(())
    }

    fn sync(&self, file: StoreFile) -> Result<()> {
        let mut state = self.0.lock();
        if let Some((_, held)) = state.held.take_if(|(held, _)| *held == file) {
            drop(state);
            held.hold();
            state = self.0.lock();
        }
        state.call()?;
        let found = state.existing(file)?;
        if state.omitted != Omitted::Sync(file) {
            state.add(Operation::Sync(found));
        }
        Ok(())
    }

    fn rename(&self, from: StoreFile, to: StoreFile) -> Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let found = state.existing(from)?;
        state.add(Operation::Rename(from, to, found));
        Ok(())
    }

    fn sync_folder(&self) -> Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        if state.omitted != Omitted::SyncFolder {
            state.add(Operation::SyncFolder);
        }
        Ok(())
    }

    fn reopen(&self, _file: StoreFile) {}

    fn has_writer(&self) -> Result<bool> {
        let mut state = self.0.lock();
        state.call()?;
        Ok(!state.has_no_writer)
    }
}
