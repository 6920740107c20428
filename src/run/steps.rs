// SPDX-License-Identifier: Apache-2.0
//! Parts of a transfer that run one after the other, one per layer, for engines without an order of their
//! own.

use std::sync::Arc;

use super::{Run, Start, Steps};
use crate::base::error;

pub trait RunPart: Send + Sync + 'static {
    /// Starts it, if it is the only one.
    fn start(&self, run: Run) {
        self.prepare_start(run)();
    }

    fn prepare_start(&self, run: Run) -> Start;
}

/// All parts of a transfer: one, or one per layer.
pub struct PartSequence<P>(Arc<Parts<P>>);

struct Parts<P>(Vec<P>);

impl<P: RunPart> PartSequence<P> {
    /// At least one part.
    pub fn new(parts: Vec<P>) -> Self {
        Self(Arc::new(Parts(parts)))
    }

    /// Starts the first part; each other one starts when the part before it has ended.
    pub fn start(&self, run: Run) {
        match &self.0.0[..] {
            [only] => only.start(run),
            _ => run.in_steps(self.0.clone()),
        }
    }

    pub fn parts(&self) -> &[P] {
        &self.0.0
    }

    pub fn first(&self) -> &P {
        &self.0.0[0]
    }

    /// The sum of a property of all parts.
    pub fn sum(&self, of: impl Fn(&P) -> u64) -> u64 {
        self.0.0.iter().map(of).sum()
    }
}

impl<P: RunPart> Steps for Parts<P> {
    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    fn start(self: Arc<Self>, part: u64, run: Run) {
        let Some(part) = self.0.get(part as usize) else {
            return run.end(Err(error!(Panic, "a transfer has no such part")));
        };
        let start = part.prepare_start(run);
        drop(self);
        start();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use once_cell::sync::OnceCell;

    use super::*;
    use crate::run::completion::{Account, Completion};
    use crate::run::ticket::Ticket;

    /// The start of the second part returns after another thread has ended the run and the end was reported.
    struct Part {
        is_first: bool,
        completion: Arc<Completion>,
        all: Arc<OnceCell<Weak<Parts<Part>>>>,
    }

    impl RunPart for Part {
        fn prepare_start(&self, run: Run) -> Start {
            if self.is_first {
                return Box::new(|| run.end(Ok(())));
            }
            let (completion, all) = (self.completion.clone(), self.all.get().unwrap().clone());
            Box::new(move || {
                let other = std::thread::spawn(move || run.end(Ok(())));
                completion.wait(None).unwrap();
                assert!(all.upgrade().is_none(), "the parts are held after the end was reported");
                other.join().unwrap();
            })
        }
    }

    #[test]
    fn the_parts_are_dropped_before_the_end_is_reported() {
        let completion = Arc::new(Completion::new(2, None));
        let all = Arc::new(OnceCell::new());
        let part = |is_first| Part { is_first, completion: completion.clone(), all: all.clone() };
        let PartSequence(parts) = PartSequence::new(vec![part(true), part(false)]);
        all.set(Arc::downgrade(&parts)).unwrap();
        Ticket::unheld(&completion, Account::default()).start().in_steps(parts);
        completion.wait(None).unwrap();
    }
}
