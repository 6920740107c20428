// SPDX-License-Identifier: Apache-2.0
//! Blocks of a caller that are no whole slots: of another size, with other heads or layers, or in memory that direct I/O can't access; and
//! blocks of a namespace that is encrypted.
//! Slots are read and written as a whole, through host memory, so that each is compared with its checksum. Between that and the
//! blocks of the caller, tokens move as in any other transfer.

use std::borrow::Borrow;
use std::sync::Arc;

use super::OpenStore;
use crate::base::{Error, Result, Status, lists};
use crate::engine::single_move::{WaitLimits, move_once};
use crate::layout::{Arrangement, Axis, Dimensions, Geometry, Layout, LayoutSource};
use crate::plan::{BlockPair, BlockTable, Outline, Plan, Slots, TokenTables, Wanted};
use crate::store::{Located, Namespace, NewBlock, Reserved, Seal};
use crate::transfer::verify::copied::{buffer_for, capacity_for};
use crate::transfer::verify::host::HostBlocks;

/// The blocks of the caller.
pub struct Conversion {
    pub wanted: Wanted,
    /// In the order of the tokens, of which each key has those of a slot.
    pub blocks: Vec<u32>,
    /// Tokens of a slot.
    pub page_size: u64,
    /// The file, as [`in_one_piece`].
    pub slots: Arc<Layout>,
    pub namespace: Arc<Namespace>,
    /// The blocks of a put, with the keys of the caller.
    pub new: Vec<NewBlock>,
}

/// All of some blocks.
pub fn whole_table(blocks: &[u32]) -> BlockTable<'_> {
    BlockTable { blocks, first_token: 0, token_step: 1 }
}

/// The same memory with blocks of one piece, which includes what is between two blocks: direct I/O can access each.
pub fn in_one_piece(layout: &Layout) -> Result<Arc<Layout>> {
    let geometry = layout.geometry();
    let Dimensions { num_blocks, alignment, .. } = *geometry.dimensions();
    let inner_dim = geometry.block_stride();
    let dimensions = Dimensions { num_blocks, alignment, inner_dim, dtype_width: 1, ..Dimensions::ONE };
    let regions = layout.memory().regions().to_vec();
    let geometry = Geometry::new(dimensions, Arrangement::FULLY_CONTIGUOUS)?;
    Layout::build(geometry, LayoutSource::Regions(regions), None)
}

/// Host memory for some slots.
struct Buffer<'a> {
    blocks: Arc<Layout>,
    /// The same memory.
    slots: Arc<Layout>,
    ids: Vec<u32>,
    limits: &'a WaitLimits,
}

impl<'a> Buffer<'a> {
    fn new(file: &Layout, count: usize, limits: &'a WaitLimits) -> Result<Self> {
        let geometry = file.geometry();
        let capacity = capacity_for(geometry, count)?;
        let blocks = buffer_for(file, capacity, geometry.count(Axis::Layer), geometry.count(Axis::Outer))?;
        let slots = in_one_piece(&blocks)?;
        Ok(Self { blocks, slots, ids: lists::collect(0..capacity as u32)?, limits })
    }

    /// Makes a move that fills the first blocks, and returns their checksums. What reports success and moves nothing leaves poison.
    fn filled(&self, count: usize, fill: impl FnOnce() -> Result<()>) -> Result<Vec<u32>> {
        let ids = lists::copied(&self.ids[..count])?;
        let blocks = HostBlocks::new(&self.blocks, ids, &Slots::all(self.blocks.geometry()))?;
        blocks.poison()?;
        fill()?;
        blocks.checksums()
    }

    /// Whether each of the first blocks has the bytes that were stored. Decrypts them if the namespace has a cipher.
    fn are_sound(
        &self,
        found: &[u32],
        blocks: &[impl Borrow<Located>],
        namespace: &Namespace,
    ) -> Result<Vec<bool>> {
        let bytes = self.bytes()?;
        let is_sound = |at: usize| match (namespace.cipher(), blocks[at].borrow().seal()) {
            _ if found[at] != blocks[at].borrow().checksum() => Ok(false),
            (None, _) => Ok(true),
            // It has not been stored with the cipher.
            (Some(_), None) => Ok(false),
            (Some(cipher), Some(seal)) => bytes.change(at as u32, |bytes| cipher.unseal(seal, bytes)),
        };
        let (mut sound, count) = (Vec::new(), blocks.len());
        lists::reserve(&mut sound, count)?;
        (0..count).try_for_each(|at| is_sound(at).map(|is_sound| sound.push(is_sound)))?;
        Ok(sound)
    }

    fn bytes(&self) -> Result<HostBlocks> {
        HostBlocks::new(&self.blocks, Vec::new(), &Slots::all(self.blocks.geometry()))
    }
}

/// Blocks that are looked at together, before one that cannot be read has each of them read alone.
const BATCH: usize = 64;

impl OpenStore {
    /// Whether each slot can be read, and has the bytes that were stored. If this cannot be found out for all, those before are returned,
    /// with the cause.
    pub fn look_at(&self, blocks: &[impl Borrow<Located>], limits: &WaitLimits) -> (Vec<bool>, Result<()>) {
        let mut sound = Vec::new();
        let outcome = blocks.chunks(BATCH).try_for_each(|part| match self.are_sound(part, limits) {
            Err(error) if is_unreadable(&error) => part.chunks(1).try_for_each(|one| {
                let found = match self.are_sound(one, limits) {
                    Err(error) if is_unreadable(&error) => vec![false],
                    found => found?,
                };
                lists::extend(&mut sound, found)
            }),
            found => lists::extend(&mut sound, found?),
        });
        (sound, outcome)
    }

    fn are_sound(&self, blocks: &[impl Borrow<Located>], limits: &WaitLimits) -> Result<Vec<bool>> {
        let buffer = Buffer::new(&self.layout, blocks.len(), limits)?;
        let reading = Arc::new(Outline::new(&self.slots, &buffer.slots, Wanted::default(), false)?);
        let mut sound = Vec::new();
        for part in blocks.chunks(buffer.ids.len()) {
            limits.ensure_in_time(|| format!("{} of {} slots are read", sound.len(), blocks.len()))?;
            let pairs = pairs_of(part)?;
            let read = || move_once(&self.slots, &buffer.slots, Plan::new(&reading, &pairs, None)?, limits);
            let found = buffer.filled(part.len(), read)?;
            lists::extend(&mut sound, buffer.are_sound(&found, part, &self.namespace)?)?;
        }
        Ok(sound)
    }
}

/// The bytes of some slots did not arrive.
fn is_unreadable(error: &Error) -> bool {
    matches!(error.status(), Status::Io | Status::Corrupt)
}

/// Some slots, and the first blocks of a buffer.
fn pairs_of(blocks: &[impl Borrow<Located>]) -> Result<Vec<BlockPair>> {
    let pair = |(block, destination): (&_, u32)| BlockPair {
        source: Borrow::<Located>::borrow(block).slot(),
        destination,
    };
    lists::collect(blocks.iter().zip(0..).map(pair))
}

impl Conversion {
    /// The table of the caller's blocks from a key on.
    pub fn table(&self, key: usize) -> BlockTable<'_> {
        BlockTable { first_token: key as u64 * self.page_size, ..whole_table(&self.blocks) }
    }

    /// Moves stored blocks to those of the caller, except those that are damaged. Returns the indices of these.
    pub fn get(
        &self,
        run: &[Located],
        [file, memory]: &[Arc<Layout>; 2],
        limits: &WaitLimits,
    ) -> Result<Vec<u64>> {
        let buffer = Buffer::new(file, run.len(), limits)?;
        let reading = Arc::new(Outline::new(&self.slots, &buffer.slots, Wanted::default(), false)?);
        let moving = Arc::new(Outline::new(&buffer.blocks, memory, self.wanted, false)?);
        let (mut damaged, mut first) = (Vec::new(), 0);
        for part in run.chunks(buffer.ids.len()) {
            self.get_part(part, first, &buffer, [&reading, &moving], memory, &mut damaged)?;
            first += part.len();
        }
        Ok(damaged)
    }

    fn get_part(
        &self,
        part: &[Located],
        first: usize,
        buffer: &Buffer<'_>,
        outlines @ [reading, moving]: [&Arc<Outline>; 2],
        memory: &Arc<Layout>,
        damaged: &mut Vec<u64>,
    ) -> Result<()> {
        let pairs = pairs_of(part)?;
        let read = || move_once(&self.slots, &buffer.slots, Plan::new(reading, &pairs, None)?, buffer.limits);
        let found = match buffer.filled(part.len(), read) {
            Err(error) if is_unreadable(&error) => match part {
                [_] => return lists::push(damaged, first as u64),
                _ => {
                    // Some of them can be read.
                    let mut each = part.chunks(1).zip(first..);
                    return each
                        .try_for_each(|(one, at)| self.get_part(one, at, buffer, outlines, memory, damaged));
                }
            },
            found => found?,
        };
        let sound = buffer.are_sound(&found, part, &self.namespace)?;
        let mut at = 0;
        while at < part.len() {
            if !sound[at] {
                lists::push(damaged, (first + at) as u64)?;
                at += 1;
                continue;
            }
            let end = (at..part.len()).find(|next| !sound[*next]).unwrap_or(part.len());
            let sides = [whole_table(&buffer.ids[at..end]), self.table(first + at)];
            let tables = TokenTables { sides, tokens: (end - at) as u64 * self.page_size };
            move_once(&buffer.blocks, memory, Plan::from_tokens(moving, &tables, None)?, buffer.limits)?;
            at = end;
        }
        Ok(())
    }

    /// Writes blocks of the caller to the slots that are reserved for them. Returns the checksums of these slots, in their order, and the
    /// seals of blocks that are encrypted.
    pub fn put(
        &self,
        slots: &[Option<Reserved>],
        [memory, file]: &[Arc<Layout>; 2],
        limits: &WaitLimits,
    ) -> Result<(Vec<u32>, Vec<Arc<Seal>>)> {
        let buffer = Buffer::new(file, slots.len(), limits)?;
        let moving = Arc::new(Outline::new(memory, &buffer.blocks, self.wanted, false)?);
        let writing = Arc::new(Outline::new(&buffer.slots, &self.slots, Wanted::default(), false)?);
        // The run ends at its deadline all the same. The slots, and the lock of the store, are kept until the last write to them has ended.
        let to_the_end = WaitLimits { deadline: None, ..limits.clone() };
        let (mut checksums, mut seals, capacity) = (Vec::new(), Vec::new(), buffer.ids.len());
        for (part, first) in slots.chunks(capacity).zip((0..).step_by(capacity)) {
            let reserved =
                part.iter().zip(0..).filter_map(|(slot, at)| slot.as_ref().map(|slot| (at, slot.slot())));
            let pairs: Vec<_> =
                lists::collect(reserved.map(|(source, destination)| BlockPair { source, destination }))?;
            // Those between them are copied, too, and not written.
            let Some(count) = pairs.last().map(|last| last.source as usize + 1) else { continue };
            let sides = [self.table(first), whole_table(&buffer.ids)];
            let tables = TokenTables { sides, tokens: count as u64 * self.page_size };
            let gather = || {
                move_once(memory, &buffer.blocks, Plan::from_tokens(&moving, &tables, None)?, limits)?;
                self.seal(&buffer, &pairs, first, &mut seals)
            };
            let found = buffer.filled(count, gather)?;
            lists::extend(&mut checksums, pairs.iter().map(|pair| found[pair.source as usize]))?;
            move_once(&buffer.slots, &self.slots, Plan::new(&writing, &pairs, None)?, &to_the_end)?;
        }
        Ok((checksums, seals))
    }

    /// Encrypts blocks of the buffer that are to be written, if the namespace has a cipher. The first one has the key with index `first`.
    fn seal(
        &self,
        buffer: &Buffer<'_>,
        pairs: &[BlockPair],
        first: usize,
        seals: &mut Vec<Arc<Seal>>,
    ) -> Result<()> {
        let Some(cipher) = self.namespace.cipher() else { return Ok(()) };
        let bytes = buffer.bytes()?;
        pairs.iter().try_for_each(|pair| {
            let block = &self.new[first + pair.source as usize];
            let seal = bytes.change(pair.source, |bytes| cipher.seal(block, bytes))??;
            lists::push(seals, Arc::new(seal))
        })
    }
}
