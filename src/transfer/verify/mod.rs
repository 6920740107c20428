// SPDX-License-Identifier: Apache-2.0
//! Checksums of moved blocks, compared before the end of a run is reported.

pub mod checksum;
pub mod gpu;
mod host;
mod pieces;
mod remainder;
mod tokens;

use std::sync::Arc;

use self::tokens::Tokens;
use super::plan::{Plan, Selection, Slots};
use super::request::{BlockPair, Expected, Step};
use super::run::Verify;
use super::run::completion::Outcome;
use crate::error::{Error, Result, ensure, fail};
use crate::layout::Layout;
use crate::nixl::MemoryType;

/// The comparison of moved blocks with their expected contents.
pub struct Verification {
    pairs: Box<[BlockPair]>,
    /// What is moved of each part of the layouts, by name; the name is empty if they have no parts.
    selections: Box<[(String, Selection)]>,
    against: Against,
}

enum Against {
    Checksums(Box<[u32]>),
    Source,
    /// The source, of which only some heads or tokens are moved; both sides are host memory.
    Elements(Plan),
    /// The same for other memory, by part of the layouts.
    Tokens(Vec<Tokens>),
}

impl Verification {
    /// Fails if the transfer can't be verified.
    pub fn new(
        [source, destination]: [&Arc<Layout>; 2],
        step: &Step<'_>,
        plan: &Plan,
        by_layer: bool,
        expected: Expected<'_>,
    ) -> Result<Self> {
        let has_whole_blocks = step.tables.is_none() && plan.has_whole_pieces();
        ensure!(
            !by_layer,
            Unsupported,
            "a transfer by layer can't be verified: layers would be reported before they are compared; \
             remove one of the two flags, or compare with kvmem_layout_checksum"
        );
        let is_remote = |layout: &Layout| layout.memory().is_remote();
        ensure!(
            !is_remote(destination),
            Unsupported,
            "this process can't access blocks of a remote destination; its owner can verify them with \
             kvmem_layout_checksum"
        );
        let against = match expected {
            Expected::Checksums(checksums) => {
                ensure!(
                    has_whole_blocks,
                    Unsupported,
                    "checksums are of whole blocks, so none can be given with block tables or a range of heads; use \
                     KVMEM_TRANSFER_VERIFY, which compares with the source"
                );
                Against::Checksums(checksums.into())
            }
            Expected::Source => {
                ensure!(
                    !is_remote(source),
                    Unsupported,
                    "this process can't access blocks of a remote source; let its owner call kvmem_layout_checksum, \
                     and pass the result as checksums"
                );
                let is_host = |layout: &Layout| layout.memory_type() == MemoryType::Dram;
                match is_host(source) && is_host(destination) {
                    _ if has_whole_blocks => Against::Source,
                    true => Against::Elements(plan.clone()),
                    false => {
                        let tokens = plan.selections().map(|(name, selection)| {
                            Tokens::of([part(source, name)?, part(destination, name)?], step, selection)
                                .map_err(|error| in_part(name, error))
                        });
                        Against::Tokens(tokens.collect::<Result<_>>()?)
                    }
                }
            }
        };
        let selections = plan.selections().map(|(name, selection)| (name.to_string(), *selection));
        Ok(Self { pairs: step.pairs.into(), selections: selections.collect(), against })
    }

    /// The checksums of one side's blocks.
    fn checksums(
        &self,
        layout: &Arc<Layout>,
        block: fn(&BlockPair) -> u32,
        slots: fn(&Selection) -> Slots,
    ) -> Result<Vec<u32>> {
        let blocks: Vec<_> = self.pairs.iter().map(block).collect();
        let computed = match &self.selections[..] {
            [(name, selection)] if name.is_empty() => checksum::of_slots(layout, &blocks, slots(selection)),
            parts => parts
                .iter()
                .map(|(name, selection)| Ok((name.as_str(), layout.part(name)?, slots(selection))))
                .collect::<Result<Vec<_>>>()
                .and_then(|parts| checksum::of_parts(parts.into_iter(), &blocks)),
        };
        computed.map_err(|error| error.context("verify moved blocks"))
    }

    fn compare(&self, expected: &[u32], found: &[u32]) -> Outcome {
        let differs = |index: &usize| expected.get(*index) != found.get(*index);
        let mut different = (0..self.pairs.len()).filter(differs);
        let Some(first) = different.next() else { return Ok(()) };
        let BlockPair { source, destination } = self.pairs[first];
        fail!(
            Corrupt,
            "{} of {} moved blocks are corrupt: the first is pair {first}, source block {source} and destination block \
             {destination}, with CRC32C {:#010x}; expected {:#010x}",
            1 + different.count(),
            self.pairs.len(),
            found[first],
            expected[first]
        )
    }
}

impl Verify for Verification {
    fn outcome(&self, layouts @ [source, destination]: &[Arc<Layout>; 2]) -> Outcome {
        let found = || self.checksums(destination, |pair| pair.destination, Selection::destination);
        match &self.against {
            Against::Checksums(expected) => self.compare(expected, &found()?),
            Against::Source => {
                let expected = self.checksums(source, |pair| pair.source, Selection::source)?;
                self.compare(&expected, &found()?)
            }
            Against::Elements(plan) => {
                let [expected, found] = [(0, source), (1, destination)]
                    .map(|(side, layout)| host::canonical_checksums(plan, side, layout));
                compare_elements(&expected, &found)
            }
            Against::Tokens(tokens) => {
                tokens.iter().zip(&self.selections).try_for_each(|(tokens, (name, _))| {
                    let [source, destination] = layouts;
                    let sides = [part(source, name)?.clone(), part(destination, name)?.clone()];
                    tokens.compare(&sides).map_err(|error| in_part(name, error))
                })
            }
        }
    }
}

fn compare_elements(expected: &[u32], found: &[u32]) -> Outcome {
    let mut different = (0..found.len()).filter(|index| expected.get(*index) != found.get(*index));
    let Some(first) = different.next() else { return Ok(()) };
    fail!(
        Corrupt,
        "{} of {} spans of tokens are not what they should be after they were moved: the first, in order of destination, is \
         span {first}, whose CRC32C is {:#010x}, and {:#010x} is expected",
        1 + different.count(),
        found.len(),
        found[first],
        expected[first]
    )
}

/// A part of a layout; the layout itself, if it has no parts.
fn part<'a>(layout: &'a Arc<Layout>, name: &str) -> Result<&'a Arc<Layout>> {
    if name.is_empty() { Ok(layout) } else { layout.part(name) }
}

fn in_part(name: &str, error: Error) -> Error {
    if name.is_empty() { error } else { error.context(format!("part '{name}'")) }
}
