// SPDX-License-Identifier: Apache-2.0
//! Namespaces of a store that is open. A namespace is a handle of the store whose calls find its own blocks only.

use std::sync::Arc;
use std::time::Instant;

use super::OpenStore;
use crate::base::{Mutex, Result, by_deadline, ensure};
use crate::store::{NamespaceConfig, Secret};

impl OpenStore {
    /// Opens a namespace, or creates it. If it is late, the namespace is closed when it is open.
    ///
    /// A quota of 0 is that of an existing one.
    pub fn open_namespace(
        self: &Arc<Self>,
        name: &str,
        quota: u64,
        secret: Option<Secret>,
        deadline: Option<Instant>,
    ) -> Result<Arc<Self>> {
        self.ensure_unnamed()?;
        ensure!(
            quota == 0 || quota >= self.slot_size(),
            InvalidArgument,
            "quota is {quota}, less than the {} bytes of a slot; set it to the bytes of at least one",
            self.slot_size()
        );
        let slots = (quota > 0).then(|| quota / self.slot_size());
        let (config, store) = (NamespaceConfig { name: name.to_string(), slots, secret }, self.clone());
        by_deadline(&self.writes, deadline, "open a namespace of a store", move || {
            let namespace = store.store.open_namespace(&config)?;
            let OpenStore { store, layout, slots, writes, _checkpoints, _reported, .. } = &*store;
            Ok(Arc::new(OpenStore {
                store: store.clone(),
                layout: layout.clone(),
                slots: slots.clone(),
                namespace,
                checked: Mutex::default(),
                writes: writes.clone(),
                _checkpoints: _checkpoints.clone(),
                _reported: _reported.clone(),
            }))
        })
    }

    /// Removes a namespace and its blocks. Returns how many these were. If it is late, they are removed later.
    pub fn remove_namespace(self: &Arc<Self>, name: &str, deadline: Option<Instant>) -> Result<u64> {
        self.ensure_unnamed()?;
        let (name, store) = (name.to_string(), self.clone());
        by_deadline(&self.writes, deadline, "remove a namespace of a store", move || {
            store.store.remove_namespace(&name)
        })
    }

    fn ensure_unnamed(&self) -> Result<()> {
        ensure!(
            self.namespace.is_unnamed(),
            InvalidArgument,
            "the handle is that of a namespace; give the handle that kvmem_store_open has returned"
        );
        Ok(())
    }
}
