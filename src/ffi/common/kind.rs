// SPDX-License-Identifier: Apache-2.0
//! Kinds distinguish the types of handles, and live handles from destroyed ones.

use crate::base::Gauge;

/// Every opaque type, by the name that messages use.
pub const NAMES: [&str; 26] = [
    "agent",
    "blob",
    "broker",
    "descriptors",
    "directory",
    "directory entry",
    "directory events",
    "error",
    "layout",
    "lease",
    "mapping",
    "memory",
    "notifications",
    "plugins",
    "prepared",
    "query",
    "queue",
    "range",
    "region",
    "registration",
    "request",
    "segments",
    "share",
    "store",
    "transfer",
    "view",
];

/// Number of handles of each type that were not destroyed.
pub static ALIVE: [Gauge; NAMES.len()] = [const { Gauge::new() }; NAMES.len()];

/// A number in every handle: one for live handles of a type, its complement for destroyed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Kind(u64);

/// The state of the handle that a kind was read from.
#[derive(Debug, PartialEq, Eq)]
pub enum HandleState {
    /// A handle of this type.
    Live(&'static str),
    /// A destroyed handle of this type.
    Destroyed(&'static str),
    /// No handle.
    Unknown,
}

impl Kind {
    /// The kind of a type. Fails to compile for a name that is not listed.
    pub const fn named(name: &str) -> Self {
        Self(hash(NAMES[Self::index(name)]))
    }

    /// The index of the name of a type. Fails to compile for a name that is not listed.
    pub const fn index(name: &str) -> usize {
        let index = listed_at(name);
        assert!(index < NAMES.len(), "add the name to NAMES");
        index
    }

    /// The kind of the type's destroyed handles.
    pub const fn destroyed(self) -> Self {
        Self(!self.0)
    }

    /// The state of the handle.
    pub fn state(self) -> HandleState {
        let named = |kind: Self| NAMES.into_iter().find(|name| hash(name) == kind.0);
        match (named(self), named(self.destroyed())) {
            (Some(name), _) => HandleState::Live(name),
            (None, Some(name)) => HandleState::Destroyed(name),
            (None, None) => HandleState::Unknown,
        }
    }
}

/// The index of a name, or the number of names.
const fn listed_at(name: &str) -> usize {
    let mut index = 0;
    while index < NAMES.len() {
        if hash(NAMES[index]) == hash(name) {
            return index;
        }
        index += 1;
    }
    index
}

/// FNV-1a, a hash that other memory is unlikely to contain.
const fn hash(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_and_a_destroyed_form() {
        for name in NAMES {
            assert_eq!(Kind::named(name).state(), HandleState::Live(name));
            assert_eq!(Kind::named(name).destroyed().state(), HandleState::Destroyed(name));
        }
        for other in [0, 1, u64::MAX, hash("thing")] {
            assert_eq!(Kind(other).state(), HandleState::Unknown);
        }
    }
}
