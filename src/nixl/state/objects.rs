// SPDX-License-Identifier: Apache-2.0
//! Why a request for an object failed. NIXL reports one status for all reasons; the store is asked whether the object exists.

#![forbid(unsafe_code)]

use super::AgentState;
use crate::error::{Error, Status};
use crate::nixl::arguments::CallOptions;
use crate::nixl::descriptor::MemoryType;
use crate::nixl::descriptors::{DescriptorEntry, Descriptors};
use crate::nixl::request::{Operation, RequestId};

impl AgentState {
    /// Adds what the store reports about the object of a failed request, for which it is asked. Other errors are unchanged.
    pub fn explain_object(&self, id: RequestId, error: Error) -> Error {
        let Some(request) = self.requests.get(&id) else { return error };
        let Some(object) = request.object.and_then(|device_id| self.object(device_id)) else { return error };
        let key = object.metadata.escape_ascii().to_string();
        let reads = request.operation == Operation::Read;
        let error = error.context(format!("{} object '{key}'", if reads { "read" } else { "write" }));
        match self.exists(object) {
            Some(false) if reads => error
                .followed_by("the store has no such object in the bucket, or no such bucket")
                .with_status(Status::NotFound),
            Some(true) if reads => {
                error.followed_by("the object exists; it may be shorter than what was to be read")
            }
            Some(_) => error.followed_by(
                "the store responds; check that the bucket exists, and that the access key may write to it",
            ),
            None => error.followed_by(
                "the store does not respond, or refuses the access key; check endpoint_override, scheme, region and the keys \
                 of the backend",
            ),
        }
    }

    /// The registered object with a device id.
    fn object(&self, device_id: u64) -> Option<DescriptorEntry> {
        let mut lists = self.segments.values().map(|segments| &segments.list);
        lists.find_map(|list| {
            let entries = list.entries().iter().filter(|_| list.memory_type() == MemoryType::Object);
            entries.into_iter().find(|entry| entry.device_id == device_id).cloned()
        })
    }

    /// Whether the store has an object; `None` if it does not say.
    fn exists(&self, object: DescriptorEntry) -> Option<bool> {
        let mut list = Descriptors::new(MemoryType::Object);
        list.add(vec![object]).ok()?;
        let found = self.query(&list, &CallOptions::default()).ok()?;
        found.first().map(Option::is_some)
    }
}
