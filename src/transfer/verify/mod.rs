// SPDX-License-Identifier: Apache-2.0
//! Checksums of moved blocks, compared before the end of a run is reported.

pub mod checksum;
mod copied;
pub mod gpu;
mod host;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use self::checksum::in_part;
use self::tokens::Tokens;
use super::transfer_request::{Expected, Step};
use crate::base::error::{Result, ensure, fail};
use crate::base::lists;
use crate::engine::preferences::Preferences;
use crate::engine::single_move::WaitLimits;
use crate::layout::{Layout, Memory, RemoteMemory};
use crate::nixl::{Agent, Command, MemoryType, Remote};
use crate::plan::BlockPair;
use crate::plan::{Plan, Selection};
use crate::run::completion::Outcome;
use crate::run::{Stop, Verify};

/// The comparison of moved blocks with their expected contents.
pub struct Verification {
    against: Against,
    stall_timeout: Option<Duration>,
    /// For the peer.
    notification: Option<Notification>,
}

struct Notification {
    agent: Arc<Agent>,
    peer: Arc<Remote>,
    message: Arc<[u8]>,
}

enum Against {
    /// Whole blocks: the checksums that were given.
    Checksums { expected: Vec<u32>, blocks: WholeBlocks },
    /// Whole blocks: those of the source.
    Source(WholeBlocks),
    /// The source, of which only some heads or tokens are moved; both sides are host memory.
    Elements(Plan),
    /// The same for other memory, and for that of a peer, by part of the layouts, with their names.
    Tokens(Vec<(String, Tokens)>),
}

/// Whole blocks, in the order of the pairs.
struct WholeBlocks {
    /// Of source and destination.
    sides: [Vec<u32>; 2],
    /// What is moved of each part of the layouts, by name; the name is empty if they have none.
    parts: Vec<(String, Selection)>,
}

impl Verification {
    /// Fails if the transfer can't be verified.
    pub fn new(
        [source, destination]: [&Arc<Layout>; 2],
        step: &Step<'_>,
        plan: &Plan,
        preferences: &Preferences,
        expected: Expected<'_>,
    ) -> Result<Self> {
        let has_whole_blocks = step.tables.is_none() && plan.has_whole_pieces();
        let stall_timeout = preferences.stall_timeout;
        let whole_blocks = || WholeBlocks::new(step, plan);
        let against = match expected {
            Expected::Checksums(checksums) => {
                ensure!(
                    has_whole_blocks,
                    Unsupported,
                    "checksums are of whole blocks, so none can be given with block tables or a range of heads; use \
                     KVMEM_TRANSFER_VERIFY, which compares with the source"
                );
                let expected = lists::collect(checksums.iter().copied())?;
                Against::Checksums { expected, blocks: whole_blocks()? }
            }
            Expected::Source => {
                let is_host = |layout: &Layout| {
                    layout.memory_type() == MemoryType::Dram && !layout.memory().is_remote()
                };
                match is_host(source) && is_host(destination) {
                    _ if has_whole_blocks => Against::Source(whole_blocks()?),
                    true => Against::Elements(plan.clone()),
                    false => {
                        let tokens = plan.selections().map(|(name, selection)| {
                            let sides = [part(source, name)?, part(destination, name)?];
                            let tokens = Tokens::new(sides, step, selection);
                            Ok((name.to_string(), tokens.map_err(|error| in_part(name, error))?))
                        });
                        Against::Tokens(tokens.collect::<Result<_>>()?)
                    }
                }
            }
        };
        let notification = Notification::from_step([source, destination], step);
        Ok(Self { against, stall_timeout, notification })
    }
}

impl Verify for Verification {
    fn outcome(&self, layouts: &[Arc<Layout>; 2], stop: Stop) -> Outcome {
        let limits = WaitLimits { deadline: None, stall_timeout: self.stall_timeout, stop };
        match &self.against {
            Against::Checksums { expected, blocks } => {
                compare(&blocks.sides, expected, &blocks.checksums(1, layouts, &limits)?)
            }
            Against::Source(blocks) => {
                let (expected, found) =
                    (blocks.checksums(0, layouts, &limits)?, blocks.checksums(1, layouts, &limits)?);
                compare(&blocks.sides, &expected, &found)
            }
            Against::Elements(plan) => compare_elements(plan, &limits),
            Against::Tokens(parts) => parts.iter().try_for_each(|(name, tokens)| {
                let sides = [part(&layouts[0], name)?.clone(), part(&layouts[1], name)?.clone()];
                tokens.compare(&sides, &limits).map_err(|error| in_part(name, error))
            }),
        }
    }

    fn notify(&self) -> Outcome {
        self.notification.as_ref().map_or(Ok(()), Notification::send)
    }
}

impl WholeBlocks {
    fn new(step: &Step<'_>, plan: &Plan) -> Result<Self> {
        let side = |block: fn(&BlockPair) -> u32| lists::collect(step.pairs.iter().map(block));
        let parts = plan.selections().map(|(name, selection)| (name.to_string(), *selection)).collect();
        Ok(Self { sides: [side(|pair| pair.source)?, side(|pair| pair.destination)?], parts })
    }

    /// The checksums of one side.
    fn checksums(&self, side: usize, layouts: &[Arc<Layout>; 2], limits: &WaitLimits) -> Result<Vec<u32>> {
        let slots = [Selection::source, Selection::destination][side];
        let mut parts = Vec::with_capacity(self.parts.len());
        for (name, selection) in &self.parts {
            parts.push((name.as_str(), part(&layouts[side], name)?, slots(selection)));
        }
        checksum::of_parts(parts.into_iter(), &self.sides[side], limits)
            .map_err(|error| error.context("verify moved blocks"))
    }
}

/// A part of a layout; the layout itself, if it has no parts.
fn part<'a>(layout: &'a Arc<Layout>, name: &str) -> Result<&'a Arc<Layout>> {
    if name.is_empty() { Ok(layout) } else { layout.part(name) }
}

impl Notification {
    fn from_step(sides: [&Arc<Layout>; 2], step: &Step<'_>) -> Option<Self> {
        let message = step.notification.as_deref()?;
        sides.into_iter().find_map(|layout| match layout.memory() {
            Memory::Remote(RemoteMemory { agent, peer, .. }) => {
                Some(Self { agent: agent.clone(), peer: peer.clone(), message: message.into() })
            }
            Memory::Local(_) => None,
        })
    }

    fn send(&self) -> Result<()> {
        let (peer, message) = (self.peer.clone(), self.message.clone());
        self.agent.call(|reply| Command::NotifyRemote(peer, message, reply)).map_err(|error| {
            self.peer.explain(error.context("the blocks are right, but the notification was not sent"))
        })
    }
}

/// Fails if checksums of blocks differ, which are in the order of the pairs.
fn compare([sources, destinations]: &[Vec<u32>; 2], expected: &[u32], found: &[u32]) -> Outcome {
    let differs = |index: &usize| expected.get(*index) != found.get(*index);
    let mut different = (0..destinations.len()).filter(differs);
    let Some(first) = different.next() else { return Ok(()) };
    fail!(
        Corrupt,
        "{} of {} moved blocks are corrupt: the first is pair {first}, source block {} and destination block \
         {}, with CRC32C {:#010x}; expected {:#010x}",
        1 + different.count(),
        destinations.len(),
        sources[first],
        destinations[first],
        found[first],
        expected[first]
    )
}

fn compare_elements(plan: &Plan, limits: &WaitLimits) -> Outcome {
    let (mut number, mut first) = (0u64, None);
    for (span, [expected, found]) in host::canonical_checksums(plan).enumerate() {
        limits.ensure_wanted()?;
        if expected != found {
            number += 1;
            first.get_or_insert((span, expected, found));
        }
    }
    let Some((first, expected, found)) = first else { return Ok(()) };
    fail!(
        Corrupt,
        "{} of {} spans of tokens are not what they should be after they were moved: the first, in order of \
         destination, is span {first}, whose CRC32C is {found:#010x}, and {expected:#010x} is expected",
        number,
        plan.parts().map(|part| part.blocks()).sum::<u64>()
    )
}
