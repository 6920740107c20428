// SPDX-License-Identifier: Apache-2.0
//! Chooses by measured cost between a descriptor for each contiguous span, large ranges through an arena of this process, and
//! an owner that serves the transfer.

use std::sync::Arc;

use super::served::ServedDivision;
use super::staged::{Division, StagingMemory, slot_size};
use crate::base::{Error, Result, Status};
use crate::engine::cost::outcome::{Candidate, Tolerance, best, put_first};
use crate::engine::cost::requests::{Rates, ServedSize};
use crate::engine::preferences::Preferences;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::run::TransferMethod;

/// Longer spans are worth a descriptor each, unless the peer has several together: prepared lists make it cheap, and the arena
/// copies every byte once more.
const LONG_SPAN: u64 = 4096;
/// The minimum number of longer spans in one range of the peer, on average.
const TOGETHER: u64 = 2;
/// Fewer spans are not worth an arena.
const MIN_SPANS: u64 = 64;
/// Another method must save a tenth, and as many seconds: its estimate is the less certain one, and it takes memory.
const MIN_GAIN: f64 = 0.9;
const MIN_SAVED: f64 = 100e-6;
const ANY: Tolerance = Tolerance { longer: 0.0, later: f64::INFINITY };

/// The chosen method to a peer, and the others.
pub(super) struct Choice {
    pub method: TransferMethod,
    /// The chunks, if it goes through an arena.
    pub division: Option<Division>,
    /// The same, if the owner serves it.
    pub served: Option<ServedDivision>,
    /// The first is the chosen one.
    pub candidates: Vec<Candidate>,
}

impl Choice {
    /// The method without an arena instead, because the chosen one failed.
    pub fn without_arena(mut self, error: &Error) -> Self {
        if let Some(failed) = self.candidates.first_mut() {
            failed.exclude(error);
        }
        put_first(&mut self.candidates, TransferMethod::Nixl);
        Self { method: TransferMethod::Nixl, ..self }
    }
}

/// A transfer with a peer.
pub(super) struct Choosing<'a> {
    pub local: &'a Arc<Layout>,
    pub remote: &'a Arc<Layout>,
    pub reads: bool,
    pub plan: &'a Plan,
    pub preferences: &'a Preferences,
    pub verifies: bool,
    pub rates: &'a Rates,
}

/// A method that is possible, with its estimate and what is said of it.
struct Rated<T> {
    division: T,
    candidate: Candidate,
}

/// A method, or why it is not compared.
type Compared<T> = std::result::Result<Rated<T>, Candidate>;

impl Choosing<'_> {
    /// Chooses the method. Fails if the caller requested one that is not possible.
    pub fn choose(&self) -> Result<Choice> {
        let [direct, staged, served] =
            [TransferMethod::Nixl, TransferMethod::NixlStaged, TransferMethod::NixlServed];
        let spans = self.plan.max_moves();
        let direct_seconds = self.rates.direct.direct(spans, self.plan.bytes());
        // Where the owner would serve long spans, an arena of this process may do better.
        let may_be_served = |spans| self.remote.served().is_some() && self.is_served_faster(spans);
        let of_staged =
            self.compared(staged, |spans| !self.are_long(spans) || may_be_served(spans), || self.staged())?;
        let is_served = ServedDivision::ensure_served([self.local, self.remote], self.reads);
        let of_served = match is_served {
            Err(error) if self.preferences.method != Some(served) => {
                Err(Candidate::new(served, 0.0).impossible_if(Some(error.message().to_string().into())))
            }
            _ => self.compared(served, |spans| self.is_served_faster(spans), || self.served())?,
        };
        let mut candidates = vec![Candidate::new(direct, direct_seconds)];
        candidates
            .extend(of_staged.as_ref().ok().map(|rated| Candidate::new(staged, rated.candidate.seconds)));
        candidates
            .extend(of_served.as_ref().ok().map(|rated| Candidate::new(served, rated.candidate.seconds)));
        let chosen = self.preferences.method.or_else(|| {
            best(&candidates, &ANY, |other| {
                let doubt = (other.seconds * (1.0 / MIN_GAIN - 1.0)).max(MIN_SAVED);
                if other.method == direct { 0.0 } else { doubt }
            })
        });
        let method = chosen.unwrap_or(direct);
        let saves_too_little = method == direct;
        let (division, staged_one) = settled(of_staged, method, saves_too_little);
        let (served, served_one) = settled(of_served, method, saves_too_little);
        candidates = vec![Candidate::new(direct, direct_seconds), staged_one, served_one];
        if method != direct {
            // The reason of the chosen one is why the others are not taken.
            candidates[0].reason = match self.preferences.method {
                Some(_) => Some("another method was requested".into()),
                None => {
                    candidates.iter().find(|each| each.method == method).and_then(|each| each.reason.clone())
                }
            };
            put_first(&mut candidates, method);
        }
        Ok(Choice { method, division, served, candidates })
    }

    /// Estimates a method, if it is requested, or could be better for so many spans.
    fn compared<T>(
        &self,
        method: TransferMethod,
        could_be_better: impl FnOnce(u64) -> bool,
        rate: impl FnOnce() -> Result<Rated<T>>,
    ) -> Result<Compared<T>> {
        if self.preferences.method == Some(method) {
            let refused = |error: Error| {
                error.context(format!("method {method} is not possible between these layouts"))
            };
            return rate().map(Ok).map_err(refused);
        }
        let spans = self.plan.max_moves();
        let reason = if self.preferences.method.is_some() {
            "another method was requested"
        } else if !self.rates.is_slow && (spans < MIN_SPANS || !could_be_better(spans)) {
            "the contiguous ranges are few, or long enough"
        } else {
            match rate() {
                Ok(rated) => return Ok(Ok(rated)),
                Err(error) if matches!(error.status(), Status::Unsupported | Status::OutOfMemory) => {
                    let reason = Some(error.message().to_string().into());
                    return Ok(Err(Candidate::new(method, 0.0).impossible_if(reason)));
                }
                Err(error) => return Err(error),
            }
        };
        Ok(Err(Candidate::new(method, 0.0).with_reason(Some(reason.into()))))
    }

    /// Whether spans are so long that even the requests of an arena take as long, without its copies. The whole estimate sorts the
    /// blocks, so it is not made for nothing.
    fn are_long(&self, spans: u64) -> bool {
        let bytes = self.plan.bytes();
        if bytes < spans * LONG_SPAN {
            return false;
        }
        let ranges = self.plan.max_ranges_on(usize::from(!self.reads));
        let direct = self.rates.direct.direct(spans, bytes);
        ranges * TOGETHER > spans || self.rates.staged.in_arena(ranges, bytes) > MIN_GAIN * direct
    }

    /// Whether the owner's large ranges save enough.
    fn is_served_faster(&self, spans: u64) -> bool {
        let bytes = self.plan.bytes();
        self.rates.served.served(&ServedSize::new(self.plan, 1))
            < MIN_GAIN * self.rates.direct.direct(spans, bytes)
    }

    fn staged(&self) -> Result<Rated<Division>> {
        let memory = StagingMemory::between(self.local, self.remote.memory_type());
        let slot = slot_size("staging_size", self.preferences.staging_size, memory)?;
        let division = Division::new(self.plan, self.remote, self.reads, slot, &self.rates.staged)?;
        let estimate = division.estimate(false)?;
        let [seconds, first_chunk] = self.rates.staged.staged(&estimate, self.plan.bytes());
        let (ranges, moves) = (estimate.descriptors, self.plan.max_moves());
        let reason = format!("{ranges} ranges through staging memory replace {moves} descriptors");
        let candidate = Candidate::new(TransferMethod::NixlStaged, seconds).with_reason(Some(reason.into()));
        let gathering = if self.reads { 0.0 } else { first_chunk };
        Ok(Rated { candidate: Candidate { gathering, ..candidate }, division })
    }

    fn served(&self) -> Result<Rated<ServedDivision>> {
        let sides = [self.local, self.remote];
        let division = ServedDivision::new(self.plan, sides, self.reads, &self.rates.served, self.verifies)
            .map_err(|error| match error.status() {
            Status::OutOfMemory => error,
            _ => error.with_status(Status::Unsupported),
        })?;
        let sessions = division.sessions();
        let mut reason = format!(
            "{} ranges of staging memory of the owner replace {} descriptors",
            division.descriptors(),
            self.plan.max_moves()
        );
        if sessions > 1 {
            reason += &format!(", by {sessions} requests to the owner");
        }
        let seconds = self.rates.served.served(&ServedSize::new(self.plan, sessions));
        let candidate = Candidate::new(TransferMethod::NixlServed, seconds).with_reason(Some(reason.into()));
        Ok(Rated { candidate, division })
    }
}

/// The division of a method, if it was chosen, and what is said of the method. Later runs change the estimates, and not the choice.
fn settled<T>(
    compared: Compared<T>,
    chosen: TransferMethod,
    saves_too_little: bool,
) -> (Option<T>, Candidate) {
    match compared {
        Err(candidate) => (None, candidate),
        Ok(Rated { division, candidate }) if candidate.method == chosen => (Some(division), candidate),
        Ok(Rated { candidate, .. }) => {
            let reason = match candidate.reason.as_deref() {
                Some(reason) if saves_too_little => format!("{reason}, which saves too little"),
                _ => format!("method {chosen} had the better estimate when it was chosen"),
            };
            (None, candidate.with_reason(Some(reason.into())))
        }
    }
}

#[cfg(test)]
mod tests;
