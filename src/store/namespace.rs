// SPDX-License-Identifier: Apache-2.0
//! A namespace of a store that is open: it has keys and slots of its own, and may have a cipher.

use std::sync::Weak;

use super::blocks::NewBlock;
use super::cipher::{Cipher, Secret};
use super::key::Key;

/// Where the keys of a caller are. The default is the namespace without a name.
#[derive(Default)]
pub struct Namespace {
    pub(super) number: u32,
    pub(super) cipher: Option<Cipher>,
}

/// A namespace to open, or to create.
#[derive(Clone)]
pub struct NamespaceConfig {
    pub name: String,
    /// Slots of its quota; `None` for those that it has.
    pub slots: Option<u64>,
    pub secret: Option<Secret>,
}

impl Namespace {
    pub fn number(&self) -> u32 {
        self.number
    }

    pub fn cipher(&self) -> Option<&Cipher> {
        self.cipher.as_ref()
    }

    /// Whether it is the one without a name.
    pub fn is_unnamed(&self) -> bool {
        self.number == 0
    }

    /// What the index has for a key of the caller.
    pub fn key(&self, key: Key) -> Key {
        match &self.cipher {
            None => key.in_namespace(self.number),
            Some(cipher) => cipher.key(&key),
        }
    }

    pub fn block(&self, block: NewBlock) -> NewBlock {
        NewBlock { key: self.key(block.key), parent: block.parent.map(|parent| self.key(parent)) }
    }
}

/// Namespaces that are open, by number.
pub type Opened = Vec<(u32, Weak<Namespace>)>;
