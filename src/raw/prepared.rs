// SPDX-License-Identifier: Apache-2.0
//! Prepared lists of raw descriptors, for requests that choose from them by index.

use std::sync::Arc;

use super::Holds;
use crate::base::{Result, ensure, error, lists};
use crate::nixl::{Agent, CallOptions, Command, DescriptorEntry, Descriptors, ListId, Released, RequestSide};

/// A list that NIXL has resolved once, for one side of requests.
pub struct Prepared {
    pub(super) agent: Arc<Agent>,
    pub(super) id: ListId,
    pub(super) side: RequestSide,
    pub(super) list: Descriptors,
    _holds: Holds,
}

impl Prepared {
    /// Prepares a list. `owner` is the agent whose memory it describes as the remote side; `None` for the local side.
    pub fn create(
        agent: &Arc<Agent>,
        owner: Option<&str>,
        list: &Descriptors,
        options: CallOptions,
    ) -> Result<Arc<Self>> {
        ensure!(!list.entries().is_empty(), InvalidArgument, "the list has no descriptor to prepare");
        let holds = if owner.is_none() { Holds::new(agent, list)? } else { Holds::default() };
        let (owner, owned) = (owner.map(str::to_string), list.clone());
        let (id, side) = agent.call(|reply| Command::PrepareList(owner, owned, options, reply))?;
        Ok(Arc::new(Self { agent: agent.clone(), id, side, list: list.clone(), _holds: holds }))
    }

    /// Whether it is for the local side of requests.
    pub fn is_local(&self) -> bool {
        matches!(self.side, RequestSide::Local)
    }

    pub(super) fn chosen(&self, indices: &[u32], name: &str) -> Result<(Descriptors, Vec<i32>)> {
        let (mut numbers, mut entries) = (Vec::new(), Vec::new());
        lists::reserve(&mut numbers, indices.len())?;
        lists::reserve(&mut entries, indices.len())?;
        let all = self.list.entries();
        for (at, index) in indices.iter().enumerate() {
            let entry = all.get(*index as usize).ok_or_else(|| {
                error!(
                    OutOfRange,
                    "{name}[{at}] is {index}, and the prepared list has {} descriptors",
                    all.len()
                )
            })?;
            // The prepared list holds what owns the memory.
            let DescriptorEntry { address, size, device_id, .. } = *entry;
            entries.push(DescriptorEntry { address, size, device_id, ..DescriptorEntry::default() });
            numbers.push(i32::try_from(*index).unwrap_or(i32::MAX));
        }
        Ok((Descriptors::new(self.list.memory_type(), entries)?, numbers))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.agent.release(Released::Lists(vec![self.id]));
    }
}
