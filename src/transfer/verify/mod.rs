// SPDX-License-Identifier: Apache-2.0
//! What is done with moved blocks before the end of a run is reported: they are compared, or their checksums are computed.

pub mod checksum;
pub(super) mod copied;
mod differences;
mod elements;
pub mod gpu;
pub(super) mod host;
mod moved_list;
mod read_slots;
mod tokens;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::checksum::in_part;
use self::differences::{Differences, NONE_LEFT};
use self::elements::Elements;
pub use self::host::Begun;
use self::host::HostBlocks;
use self::moved_list::MovedList;
use self::tokens::Tokens;
use super::layout_pair::LayoutPair;
use super::transfer_request::Step;
use crate::base::{Result, Status, ensure, lists};
use crate::engine::explain::RunEstimate;
use crate::engine::preferences::Preferences;
use crate::engine::single_move::WaitLimits;
use crate::layout::{Axis, Layout, Memory, RemoteMemory};
use crate::nixl::{Agent, Command, MemoryType, Remote};
use crate::plan::{Plan, Selection};
use crate::run::{Findings, Outcome, Stop, Verify};

/// What is done with the moved blocks.
pub struct Verification {
    moved: Moved,
    /// The expected checksums of whole blocks; otherwise the source has what is expected.
    given: Option<Vec<u32>>,
    compares: bool,
    /// The engine compares them while it moves them. What differs is looked for after it has found damage.
    by_engine: bool,
    /// The checksums of whole blocks are returned.
    returns: bool,
    /// Bytes that the check after a run reads.
    read: u64,
    pair: Arc<LayoutPair>,
    stall_timeout: Option<Duration>,
    /// For the peer.
    notification: Option<Notification>,
}

struct Notification {
    agent: Arc<Agent>,
    peer: Arc<Remote>,
    message: Arc<[u8]>,
}

enum Moved {
    Blocks(WholeBlocks),
    /// Only some heads or tokens; both sides are host memory.
    Elements(Elements),
    /// The same in other memory, and in that of a peer, by part of the layouts, with their names.
    Tokens(Vec<(String, Tokens)>),
}

/// Whole blocks, in the order of the pairs.
struct WholeBlocks {
    list: MovedList,
    /// What is moved of each part of the layouts, by name; the name is empty if they have none.
    parts: Vec<(String, Selection)>,
}

impl Verification {
    /// What is to be done after a run of a step, if that is anything. Fails if it can't be done.
    pub(super) fn for_step(
        sides: [&Arc<Layout>; 2],
        step: &Step<'_>,
        plan: &Plan,
        (pair, preferences): (&Arc<LayoutPair>, &Preferences),
        by_engine: bool,
    ) -> Result<Option<Self>> {
        if !step.is_checked() {
            return Ok(None);
        }
        let returns = step.returns_checksums;
        let moved = match Moved::new(sides, step, plan) {
            // The engine verifies blocks that can't be looked at one by one.
            Err(error) if by_engine && !returns && error.status() == Status::Unsupported => return Ok(None),
            moved => moved?,
        };
        // Of both sides, unless checksums are given, or only returned.
        let times = match step.compares() && !by_engine {
            true => 1 + u64::from(step.checksums.is_none()),
            false => u64::from(returns),
        };
        Ok(Some(Self {
            moved,
            read: times * plan.bytes(),
            pair: pair.clone(),
            given: step.checksums.map(lists::copied).transpose()?,
            compares: step.compares(),
            by_engine,
            returns,
            stall_timeout: preferences.stall_timeout,
            notification: Notification::from_step(sides, step).filter(|_| returns || !by_engine),
        }))
    }

    /// Begins to compute the checksums that are returned, if they are those of the source in host memory, which nothing writes to until
    /// the run has ended. The run holds the result, and the layouts for longer.
    pub fn begin(&self, source: &Arc<Layout>) -> Result<Option<Begun>> {
        match &self.moved {
            Moved::Blocks(blocks) if self.returns && !self.compares && is_in(source, &[MemoryType::Dram]) => {
                blocks.begin(source)
            }
            _ => Ok(None),
        }
    }

    /// The same for checksums that are compared with given ones, of blocks that arrive in host memory from the file that is the source.
    pub fn begin_on_arrival(&self, [source, destination]: [&Arc<Layout>; 2]) -> Result<Option<Begun>> {
        match &self.moved {
            Moved::Blocks(blocks)
                if self.compares && self.given.is_some() && is_in(destination, &[MemoryType::Dram]) =>
            {
                blocks.begin_on_arrival([source, destination])
            }
            _ => Ok(None),
        }
    }

    /// The duration of the check after a run, as earlier ones between the layouts say. `None` if only the engine checks the blocks.
    pub fn estimate(&self) -> Option<RunEstimate> {
        (self.read > 0).then(|| RunEstimate::recorded(&self.pair.checks, self.read))
    }

    fn is_needed(&self, moved: &Outcome) -> bool {
        match moved {
            Ok(()) => self.returns || !self.by_engine,
            Err(error) => self.by_engine && error.status() == Status::Corrupt,
        }
    }

    /// Whether blocks have the given checksums.
    pub fn are_equal(&self, found: &[u32]) -> bool {
        self.given.as_deref() == Some(found)
    }

    /// Fails if blocks have other checksums than the given ones.
    pub fn compare(&self, found: &[u32], findings: &mut Findings) -> Outcome {
        match (&self.moved, &self.given) {
            (Moved::Blocks(blocks), Some(given)) => {
                Differences::between(given, found)?.outcome(&blocks.list, findings)
            }
            _ => Ok(()),
        }
    }

    /// Computes checksums, and compares them if `compares`.
    fn check(
        &self,
        layouts: &[Arc<Layout>; 2],
        limits: &WaitLimits,
        compares: bool,
        findings: &mut Findings,
    ) -> Outcome {
        match &self.moved {
            Moved::Blocks(blocks) if compares => {
                let expected = match &self.given {
                    Some(given) => lists::copied(given)?,
                    None => blocks.checksums(0, layouts, limits)?,
                };
                let found = blocks.checksums(1, layouts, limits)?;
                let differences = Differences::between(&expected, &found);
                if self.returns {
                    findings.checksums = Some(found);
                }
                differences?.outcome(&blocks.list, findings)
            }
            Moved::Blocks(blocks) => {
                // This process reads the destination's blocks in place where it can.
                let side = usize::from(is_in(&layouts[1], &[MemoryType::Dram, MemoryType::Vram]));
                findings.checksums = Some(blocks.checksums(side, layouts, limits)?);
                Ok(())
            }
            Moved::Elements(elements) => elements.compare(limits, findings),
            Moved::Tokens(parts) => {
                let mut outcome = Ok(());
                for (name, tokens) in parts {
                    let sides = [part(&layouts[0], name)?.clone(), part(&layouts[1], name)?.clone()];
                    match tokens.compare(&sides, limits, findings).map_err(|error| in_part(name, error)) {
                        Err(error) if error.status() == Status::Corrupt => outcome = outcome.and(Err(error)),
                        other => other?,
                    }
                }
                outcome
            }
        }
    }
}

impl Moved {
    fn new(sides @ [source, destination]: [&Arc<Layout>; 2], step: &Step<'_>, plan: &Plan) -> Result<Self> {
        if step.tables.is_none() && plan.has_whole_pieces() {
            return Ok(Self::Blocks(WholeBlocks::new(sides, step, plan)?));
        }
        ensure!(
            step.checksums.is_none() && !step.returns_checksums,
            Unsupported,
            "checksums are of whole blocks, so none can be given or returned with block tables or a range of heads; use \
             KVMEM_SUBMIT_VERIFY, which compares with the source"
        );
        if sides.iter().all(|layout| is_in(layout, &[MemoryType::Dram])) {
            return Ok(Self::Elements(Elements::new(MovedList::new(step, sides)?, plan.clone())));
        }
        let tokens = plan.selections().map(|(name, selection)| {
            let sides = [part(source, name)?, part(destination, name)?];
            let tokens = Tokens::new(sides, step, selection);
            Ok((name.to_string(), tokens.map_err(|error| in_part(name, error))?))
        });
        Ok(Self::Tokens(tokens.collect::<Result<_>>()?))
    }
}

impl Verify for Verification {
    fn follows(&self, moved: &Outcome, is_reported: bool) -> bool {
        !is_reported && self.is_needed(moved)
    }

    fn outcome(
        &self,
        moved: Outcome,
        layouts: &[Arc<Layout>; 2],
        stop: Stop,
        findings: &mut Findings,
    ) -> Outcome {
        let limits = WaitLimits { stall_timeout: self.stall_timeout, stop, ..WaitLimits::default() };
        let compares = self.compares && (moved.is_err() || !self.by_engine);
        let begun = Instant::now();
        let checked = self.check(layouts, &limits, compares, findings);
        if moved.is_ok() && checked.is_ok() {
            self.pair.checks.add(self.read, begun.elapsed());
        }
        match (moved, checked) {
            (Ok(()), checked) => checked,
            (Err(error), Err(other)) if other.status() != Status::Corrupt => {
                Err(error.followed_by(format!("the blocks that differ were not found: {other}")))
            }
            (Err(error), Ok(())) if compares => Err(error.followed_by(NONE_LEFT)),
            (damaged, _) => damaged,
        }
    }

    fn notify(&self) -> Outcome {
        self.notification.as_ref().map_or(Ok(()), Notification::send)
    }
}

/// Whether a layout is in memory of this process, of some types.
fn is_in(layout: &Layout, types: &[MemoryType]) -> bool {
    !layout.memory().is_remote() && types.contains(&layout.memory_type())
}

impl WholeBlocks {
    fn new(sides: [&Arc<Layout>; 2], step: &Step<'_>, plan: &Plan) -> Result<Self> {
        let parts = plan.selections().map(|(name, selection)| (name.to_string(), *selection)).collect();
        Ok(Self { list: MovedList::new(step, sides)?, parts })
    }

    fn begin(&self, source: &Arc<Layout>) -> Result<Option<Begun>> {
        let [(name, selection)] = &self.parts[..] else { return Ok(None) };
        let blocks = lists::copied(self.list.blocks(0))?;
        HostBlocks::new(part(source, name)?, blocks, &selection.source())?.begin()
    }

    /// Slots of a store begin at the start of its file, and are blocks of it.
    fn begin_on_arrival(&self, [source, destination]: [&Arc<Layout>; 2]) -> Result<Option<Begun>> {
        let [(name, selection)] = &self.parts[..] else { return Ok(None) };
        let blocks = lists::copied(self.list.blocks(1))?;
        let blocks = HostBlocks::new(part(destination, name)?, blocks, &selection.destination())?;
        blocks.begin_on_arrival(self.list.blocks(0), source.geometry().stride(Axis::Block))
    }

    fn checksums(&self, side: usize, layouts: &[Arc<Layout>; 2], limits: &WaitLimits) -> Result<Vec<u32>> {
        let slots = [Selection::source, Selection::destination][side];
        let mut parts = Vec::with_capacity(self.parts.len());
        for (name, selection) in &self.parts {
            parts.push((name.as_str(), part(&layouts[side], name)?, slots(selection)));
        }
        checksum::of_parts(parts.into_iter(), self.list.blocks(side), limits)
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
