// SPDX-License-Identifier: Apache-2.0
//! Numbers by which the log names objects: an object has the same number in all of its lines.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of an object, which is unique among all objects of the process. Later objects have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId(u64);

impl LogId {
    /// A new number. It is always assigned, because the log may be enabled while objects exist.
    pub fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl std::fmt::Display for LogId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_used_twice() {
        let (first, second) = (LogId::next(), LogId::next());
        assert_ne!(first, second);
        assert!(first.to_string().starts_with('#'));
    }
}
