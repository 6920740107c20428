// SPDX-License-Identifier: Apache-2.0
//! Blocks under keys in a folder, which survive the process and a loss of power. docs/store.md has the format and the promises.
//!
//! - A *slot* is a block id of the layout in the file of blocks. This module moves no bytes of blocks: who stores a block
//!   reserves a slot, writes it, and commits it with its checksum.
//! - The *index* is the state in memory: which key is in which slot, and what can be evicted. Pure.
//! - The *journal* is the file that the index is recovered from. It has a *record* for each change, and begins with a
//!   *checkpoint*: records of all that was stored when the file was written.
//! - A slot is in *quarantine* while its key is removed in memory, but not yet in the journal as durably as the mode requires.
//!   Nothing is written to it, so that no record that a crash leaves names a slot with the bytes of another key.
//! - A *namespace* is a part of the store with keys and slots of its own, and perhaps a *cipher*. What the index has of a block that
//!   is encrypted is its *seal*.
//! - A *reader* is another process, whose index follows the records that the writer has *published*.

mod block_store;
mod blocks;
mod cipher;
mod commits;
mod description;
mod evictable;
mod files;
mod index;
mod journal;
mod key;
mod listing;
mod namespace;
mod namespace_list;
mod open_namespaces;
mod pools;
mod published;
mod ranks;
mod reading;
mod record;
mod removal;
mod seal;
mod space;
pub mod statistics;
mod store_header;
mod table;
mod turns;
#[cfg(test)]
mod tests;

pub use block_store::{Access, Durability, Policy, Store};
pub use blocks::{Counts, Entry, Located, NewBlock, Reserved, Written};
pub use cipher::{Cipher, Secret};
pub use description::{changed_blocks, describe};
pub use files::{Files, StoreFile, StoreFolder};
pub use key::{Key, Keys};
pub use namespace::{Namespace, NamespaceConfig};
pub use seal::Seal;
pub use statistics::{FIRST_COUNT, ReportedStore};
pub use store_header::{Header, Identity};
