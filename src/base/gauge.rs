// SPDX-License-Identifier: Apache-2.0
//! Numbers of what exists or has happened in this process, for statistics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::PerProcess;

/// A sum over all things of one kind that exist. A forked child begins with 0: it may not use what its parent has made.
pub struct Gauge(PerProcess<AtomicU64>);

/// One of these things: its amount is part of the sum until this is dropped.
pub struct Counted {
    /// That of the process that has made the thing.
    sum: &'static AtomicU64,
    amount: u64,
}

impl Gauge {
    pub const fn new() -> Self {
        Self(PerProcess::new())
    }

    /// Adds an amount to the sum, as long as the result exists.
    pub fn count(&self, amount: u64) -> Counted {
        let sum = self.sum();
        sum.fetch_add(amount, Ordering::Relaxed);
        Counted { sum, amount }
    }

    /// Adds to a sum of what has happened, which never decreases.
    pub fn add(&self, amount: u64) {
        self.sum().fetch_add(amount, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.sum().load(Ordering::Relaxed)
    }

    /// Not inlined: there are many places.
    #[inline(never)]
    fn sum(&self) -> &'static AtomicU64 {
        self.0.get(AtomicU64::default)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_part_of_the_sum_while_its_thing_exists() {
        static BYTES: Gauge = Gauge::new();
        let (one, other) = (BYTES.count(3), BYTES.count(4));
        assert_eq!(BYTES.value(), 7);
        drop(one);
        assert_eq!(BYTES.value(), 4);
        drop(other);
        assert_eq!(BYTES.value(), 0);
    }
}
