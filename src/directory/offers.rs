// SPDX-License-Identifier: Apache-2.0
//! What must exist while peers can find an entry: the shares of its layouts at brokers.

use std::collections::HashMap;
use std::mem;

use crate::base::Mutex;

/// Something that an entry names, and that ends when this is dropped.
pub type Offer = Box<dyn Send + Sync>;

/// What the entries of a directory name, by agent.
#[derive(Default)]
pub struct Offers(Mutex<HashMap<String, Kept>>);

#[derive(Default)]
struct Kept {
    /// Named by the entry that peers find.
    _stored: Vec<Offer>,
    /// Named by an entry of which it is not known whether the store has it, or will have it.
    submitted: Vec<Offer>,
}

impl Offers {
    /// Keeps what an entry names after it was submitted to a store, instead of what the entries before it named. A store that did not
    /// respond may store the entry later, and until then peers find the previous one.
    pub fn keep(&self, agent: &str, offers: Vec<Offer>, is_stored: bool) {
        let mut agents = self.0.lock();
        let kept = agents.entry(agent.to_string()).or_default();
        let replaced = if is_stored {
            mem::replace(kept, Kept { _stored: offers, submitted: Vec::new() })
        } else {
            Kept { _stored: Vec::new(), submitted: mem::replace(&mut kept.submitted, offers) }
        };
        // An offer may be the last holder of memory, so none is dropped under the lock.
        drop(agents);
        drop(replaced);
    }

    /// Ends what the entries of an agent name.
    pub fn end(&self, agent: &str) {
        let ended = self.0.lock().remove(agent);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_offer_lasts_as_long_as_an_entry_that_may_name_it() {
        let offers = Offers::default();
        let made = [(); 4].map(Arc::new);
        let of = |index: usize| vec![Box::new(made[index].clone()) as Offer];
        let alive = || made.each_ref().map(|offer| Arc::strong_count(offer) > 1);
        offers.keep("a", of(0), true);
        offers.keep("a", of(1), false);
        assert_eq!(alive(), [true, true, false, false], "either may be stored");
        offers.keep("a", of(2), false);
        assert_eq!(alive(), [true, false, true, false], "the store executes the last request last");
        offers.keep("a", of(3), true);
        assert_eq!(alive(), [false, false, false, true]);
        offers.end("b");
        offers.end("a");
        assert_eq!(alive(), [false; 4]);
    }
}
