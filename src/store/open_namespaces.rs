// SPDX-License-Identifier: Apache-2.0
//! Opening, creating and removing namespaces of a store.

use std::sync::Arc;

use super::block_store::{Access, Pending, Store};
use super::cipher::{Cipher, Secret};
use super::files::{Files, StoreFile};
use super::namespace::{Namespace, NamespaceConfig};
use super::namespace_list::{Described, NamespaceList};
use crate::base::{Count, Result, ensure, error, fail, lists};

impl<F: Files> Store<F> {
    /// Opens a namespace, with the quota that is given, or creates it.
    pub fn open_namespace(&self, config: &NamespaceConfig) -> Result<Arc<Namespace>> {
        let mut pending = self.journal.lock();
        if self.policy.access == Access::Read {
            self.files.reopen(StoreFile::Namespaces);
            pending.namespaces = NamespaceList::read(&self.files, &self.header)?;
        }
        let mut next = pending.namespaces.clone();
        let (number, cipher) = match next.find(&config.name) {
            Some(found) => {
                let cipher = self.cipher(found, config.secret.as_ref())?;
                if let Some(slots) = config.slots {
                    found.slots = slots;
                }
                (found.number, cipher)
            }
            None => self.create(&mut next, config)?,
        };
        if self.policy.access == Access::Write && next != pending.namespaces {
            next.ensure_valid(&self.header)?;
            next.write(&self.files)?;
            pending.namespaces = next;
        }
        let slots = pending.namespaces.find(&config.name).map_or(0, |found| found.slots);
        self.index.lock().set_quota(number, slots);
        let namespace = Arc::new(Namespace { number, cipher });
        pending.opened.retain(|(_, opened)| opened.strong_count() > 0);
        lists::push(&mut pending.opened, (number, Arc::downgrade(&namespace)))?;
        Ok(namespace)
    }

    fn create(&self, list: &mut NamespaceList, config: &NamespaceConfig) -> Result<(u32, Option<Cipher>)> {
        let name = &config.name;
        ensure!(
            self.policy.access == Access::Write,
            NotFound,
            "the store has no namespace '{name}'; the writer of the store creates it"
        );
        let Some(slots) = config.slots else {
            fail!(
                InvalidArgument,
                "the namespace '{name}' is new, and quota is 0; set the bytes that it may have"
            );
        };
        let number = list.next;
        let made =
            config.secret.as_ref().map(|secret| Cipher::create(secret, number, &self.header)).transpose()?;
        let (cipher, encryption) = made.unzip();
        list.add(Described { number, name: name.clone(), slots, encryption })?;
        Ok((number, cipher))
    }

    /// The cipher of a namespace that exists.
    fn cipher(&self, found: &Described, secret: Option<&Secret>) -> Result<Option<Cipher>> {
        let name = &found.name;
        match (&found.encryption, secret) {
            (None, None) => Ok(None),
            (Some(_), None) => {
                fail!(PermissionDenied, "the namespace '{name}' is encrypted, and key is NULL; give its key")
            }
            (None, Some(_)) => fail!(
                InvalidArgument,
                "the namespace '{name}' is not encrypted, and a key is given; set key to NULL, or remove the namespace by \
                 kvmem_store_remove_namespace and create it with the key"
            ),
            (Some(recognition), Some(secret)) => {
                let cipher = Cipher::open(secret, recognition, found.number, &self.header)?;
                cipher.map(Some).ok_or_else(|| {
                    error!(
                        PermissionDenied,
                        "key is not that of the namespace '{name}'; give the key with which it was created, or remove the \
                         namespace by kvmem_store_remove_namespace"
                    )
                })
            }
        }
    }

    /// Removes a namespace and its blocks. Returns how many these were. Fails with BUSY while it is open, or one of its blocks is read.
    pub fn remove_namespace(&self, name: &str) -> Result<u64> {
        self.ensure_writable()?;
        let mut pending = self.journal.lock();
        let mut next = pending.namespaces.clone();
        let Some(number) = next.find(name).map(|found| found.number) else {
            fail!(NotFound, "the store has no namespace '{name}'");
        };
        let open =
            pending.opened.iter().filter(|(other, opened)| *other == number && opened.strong_count() > 0);
        let open = open.count();
        ensure!(
            open == 0,
            Busy,
            "the namespace '{name}' is open by {}; destroy {}, and wait for the puts and gets",
            Count(open as u64, "handle"),
            if open == 1 { "it" } else { "them" }
        );
        let removed = self.remove_all(&mut pending, number, name)?;
        next.remove(number);
        next.write(&self.files)?;
        pending.namespaces = next;
        self.index.lock().set_quota(number, 0);
        Ok(removed)
    }

    /// Removes all blocks of a namespace, and makes that durable.
    fn remove_all(&self, pending: &mut Pending, number: u32, name: &str) -> Result<u64> {
        let (mut removed, mut is_read) = (0, false);
        for slots in self.parts_from(0) {
            lists::reserve(&mut pending.records, slots.len())?;
            let mut index = self.index.lock();
            for slot in slots {
                match index.remove_of(number, slot as u32) {
                    Some(Ok(record)) => {
                        pending.records.push(record);
                        removed += 1;
                    }
                    Some(Err(())) => is_read = true,
                    None => {}
                }
            }
        }
        self.write_pending(pending)?;
        ensure!(
            !is_read,
            Busy,
            "kvmem_store_verify reads a block of the namespace '{name}' now; {} are removed, try again for the others",
            Count(removed, "block")
        );
        Ok(removed)
    }
}
