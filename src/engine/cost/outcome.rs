// SPDX-License-Identifier: Apache-2.0
//! The methods that were compared for a transfer, and which one is best. All engines choose here.

use std::borrow::Cow;

use crate::base::Error;
use crate::run::{TransferMethod, counters};

/// Why a method is not taken. Most reasons are known before, and allocate nothing: few callers read them.
pub type Reason = Cow<'static, str>;

/// A method that was compared with the others.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub method: TransferMethod,
    /// Estimated duration of a run; 0 if unknown, infinite if it would not be taken, whatever it takes.
    pub seconds: f64,
    /// Those of them before the first request is posted; 0 if nothing is gathered before it.
    pub gathering: f64,
    /// Why it is not taken.
    pub reason: Option<Reason>,
    /// The method is not possible. Otherwise the reason only says why another one is better, or was requested.
    pub is_impossible: bool,
}

/// What is against a method.
#[derive(Clone, Debug)]
pub struct Against {
    pub reason: Reason,
    pub is_impossible: bool,
}

impl Against {
    /// It is possible, and another one is better, or was requested.
    pub fn better(reason: impl Into<Reason>) -> Self {
        Self { reason: reason.into(), is_impossible: false }
    }

    pub fn impossible(reason: impl Into<Reason>) -> Self {
        Self { reason: reason.into(), is_impossible: true }
    }
}

impl Candidate {
    pub fn new(method: TransferMethod, seconds: f64) -> Self {
        Self { method, seconds, gathering: 0.0, reason: None, is_impossible: false }
    }

    /// The same with the reason why it is not taken, if there is one.
    pub fn with_reason(self, reason: Option<Reason>) -> Self {
        Self { reason, ..self }
    }

    /// The same with what is against it, if there is anything.
    pub fn against(self, against: Option<Against>) -> Self {
        let is_impossible = against.as_ref().is_some_and(|against| against.is_impossible);
        Self { is_impossible, reason: against.map(|against| against.reason), ..self }
    }

    /// The same, which is not possible if there is a reason.
    pub fn impossible_if(self, reason: Option<Reason>) -> Self {
        Self { is_impossible: reason.is_some(), reason, ..self }
    }

    /// Makes it impossible, because it could not be prepared. Another method is taken instead.
    #[cold]
    pub fn exclude(&mut self, error: &Error) {
        counters::count_fallback(self.method, error.status());
        *self = self.clone().impossible_if(Some(error.message().to_string().into()));
    }
}

/// What an engine prefers among methods of nearly the same duration.
pub struct Tolerance {
    /// How much longer than the fastest method another one may take: a fraction.
    pub longer: f64,
    /// Seconds.
    pub later: f64,
}

/// The best method without a reason against it: of those that take hardly longer than the fastest one, the one with the least sum of its duration and
/// of `extra`, the seconds that its other costs are worth, such as CPU time, memory, or a less certain estimate.
pub fn best(
    candidates: &[Candidate],
    tolerance: &Tolerance,
    extra: impl Fn(&Candidate) -> f64,
) -> Option<TransferMethod> {
    let possible = || candidates.iter().filter(|candidate| candidate.reason.is_none());
    let least = possible().map(|candidate| candidate.seconds).fold(f64::INFINITY, f64::min);
    let most = least * (1.0 + tolerance.longer) + tolerance.later;
    let close = possible().filter(|candidate| candidate.seconds <= most);
    let compared = close.map(|candidate| (candidate.method, candidate.seconds + extra(candidate)));
    compared.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(method, _)| method)
}

/// Moves the method that is taken to the front, without a reason against it.
pub fn put_first(candidates: &mut [Candidate], taken: TransferMethod) {
    if let Some(at) = candidates.iter().position(|candidate| candidate.method == taken) {
        candidates[..=at].rotate_right(1);
        candidates[0].reason = None;
    }
}

/// The estimates of as many layers as `times`, each of which takes as long as these.
pub fn repeat(candidates: &mut [Candidate], times: u64) {
    candidates.iter_mut().for_each(|candidate| candidate.seconds *= times as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    fn methods() -> [Candidate; 3] {
        [(TransferMethod::Nixl, 1.0), (TransferMethod::NixlStaged, 0.98), (TransferMethod::NixlServed, 0.5)]
            .map(|(method, seconds)| Candidate::new(method, seconds))
    }

    #[test]
    fn other_costs_count_among_methods_of_about_the_same_duration() {
        let mut candidates = methods();
        let of_arena =
            |candidate: &Candidate| if candidate.method == TransferMethod::Nixl { 0.0 } else { 0.1 };
        let tolerance = Tolerance { longer: 0.05, later: 0.0 };
        assert_eq!(best(&candidates, &tolerance, of_arena), Some(TransferMethod::NixlServed));
        candidates[2] = candidates[2].clone().impossible_if(Some("no owner serves it".into()));
        assert_eq!(best(&candidates, &tolerance, of_arena), Some(TransferMethod::Nixl));
        assert_eq!(best(&candidates, &tolerance, |_| 0.0), Some(TransferMethod::NixlStaged));
        assert_eq!(best(&[], &tolerance, of_arena), None);
    }

    #[test]
    fn a_method_that_could_not_be_prepared_is_counted_with_the_status_of_its_failure() {
        let count = |status: Status| {
            counters::FALLBACKS[TransferMethod::NixlServed as usize][(status as i32).unsigned_abs() as usize]
                .value()
        };
        let before = [Status::VersionMismatch, Status::NotFound].map(count);
        let [_, _, mut served] = methods();
        served.exclude(&Error::new(Status::VersionMismatch, "another version"));
        assert!(served.is_impossible && served.reason.as_deref() == Some("another version"));
        assert_eq!([Status::VersionMismatch, Status::NotFound].map(count), [before[0] + 1, before[1]]);
    }

    #[test]
    fn the_taken_method_is_first_and_the_order_of_the_others_remains() {
        let mut candidates = methods();
        put_first(&mut candidates, TransferMethod::NixlServed);
        let order = candidates.map(|candidate| candidate.method);
        assert_eq!(order, [TransferMethod::NixlServed, TransferMethod::Nixl, TransferMethod::NixlStaged]);
    }
}
