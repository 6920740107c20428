// SPDX-License-Identifier: Apache-2.0
//! Which store an object is in, and why a request for it failed. NIXL reports one status for all reasons; the store is asked
//! whether the object exists.

use std::time::{Duration, Instant};

use super::AgentState;
use crate::base::{Count, Error, Status};
use crate::nixl::arguments::CallOptions;
use crate::nixl::descriptor::MemoryType;
use crate::nixl::descriptors::{DescriptorEntry, Descriptors};
use crate::nixl::raw_descriptors::SegmentsId;
use crate::nixl::request_handle::{Operation, RequestId, RequestSide, RequestState};

/// If a store has not replied for this long, its backend repeats the requests. The store is not asked then: the query would
/// take as long, and the agent's thread would wait for it.
const SILENT: Duration = Duration::from_secs(10);

/// The parameters of backends that say which store they use. None of them is a secret.
const STORE_PARAMETERS: [&str; 3] = ["bucket", "container_name", "endpoint_override"];

/// What the store says about the object of a failed request.
enum StoreReply {
    Exists,
    Missing,
    /// The query failed, too.
    Failed,
    /// It was not asked: it has been silent for this long.
    NotAsked(Duration),
}

impl AgentState {
    /// Adds what the store reports about the object of a failed request, for which it is asked if it responds at all, and advice
    /// for files. Other errors are unchanged, also those that prevent the request from being posted.
    pub fn explain_object(&mut self, id: RequestId, error: Error) -> Error {
        let failed = self.requests.get(&id).filter(|request| request.state == RequestState::Failed);
        let Some(request) = failed else { return error };
        let operation = request.operation;
        let Some(objects) = request.objects else { return self.explain_file(id, operation, error) };
        let object = objects.device_id.and_then(|device_id| self.registered_object(device_id));
        let Some(object) = object.cloned() else { return error };
        let doing = format!("{} object '{}'", operation.verb(), object.metadata.escape_ascii());
        let plugin = match self.backend_of(id) {
            Ok(plugin) => plugin,
            Err(unknown) => return error.context(doing).followed_by(unknown),
        };
        let last_reply = self.backends.get(&plugin).and_then(|backend| backend.last_reply);
        let silence = objects.silence(last_reply, Instant::now());
        let error = error.context(format!("{doing} of {}", self.store(&plugin)));
        let reply = if silence < SILENT { self.ask(object, &plugin) } else { StoreReply::NotAsked(silence) };
        if matches!(reply, StoreReply::Exists | StoreReply::Missing) {
            self.note_reply(id);
        }
        reply.explain(operation, error)
    }

    /// Adds what a caller can check of a failed request on raw descriptors of files. NIXL writes the reason to stderr.
    fn explain_file(&mut self, id: RequestId, operation: Operation, error: Error) -> Error {
        let storage = self.requests.get(&id).and_then(|request| request.own.get(1));
        let count = match storage {
            Some((MemoryType::File, spans)) => Count(spans.len() as u64, "descriptor"),
            _ => return error,
        };
        let by = self.backend_of(id).map_or(String::new(), |plugin| format!(" by the {plugin} backend"));
        error.context(format!("{} {count} of files{by}", operation.verb())).followed_by(
            "check that each device_id is a file descriptor of this process that is open for that, and that a file to read is \
             long enough",
        )
    }

    /// Notes that the store of a request replies.
    pub(super) fn note_reply(&mut self, id: RequestId) {
        if let Ok((_, backend)) = self.chosen_backend(id) {
            backend.last_reply = Some(Instant::now());
        }
    }

    /// The store that registered objects are in, for messages.
    pub fn store_of(&self, id: SegmentsId) -> String {
        let plugins = self.registered.get(id).map(|segments| &segments.plugins[..]).unwrap_or_default();
        let stores: Vec<_> = plugins.iter().map(|plugin| self.store(plugin)).collect();
        stores.join(" and ")
    }

    /// The storage that a request of the agent to itself uses, for messages: the first object of the list, if it is of objects,
    /// and the backend.
    pub fn storage_of(&mut self, id: RequestId, list: &Descriptors) -> Option<String> {
        if !matches!(self.requests.get(&id)?.remote, RequestSide::Own) {
            return None;
        }
        let store = self.backend_of(id).map(|plugin| self.store(&plugin)).ok()?;
        let first = list.entries().first().filter(|_| list.memory_type() == MemoryType::Object);
        let Some(object) = first.and_then(|first| self.registered_object(first.device_id)) else {
            return Some(store);
        };
        let others = if list.entries().len() > 1 { " and others" } else { "" };
        Some(format!("object '{}'{others} of {store}", object.metadata.escape_ascii()))
    }

    /// A backend, and the store that its parameters name.
    fn store(&self, plugin: &str) -> String {
        let known = self.backends.get(plugin).and_then(|backend| self.backend_properties(backend).ok());
        let parameters = known.map(|(_, parameters)| parameters).unwrap_or_default();
        let named = STORE_PARAMETERS.iter().filter_map(|name| {
            let value = parameters.get(*name).filter(|value| !value.is_empty())?;
            Some(format!("{name} '{value}'"))
        });
        let named: Vec<_> = named.collect();
        if named.is_empty() {
            return format!("the {plugin} backend");
        }
        format!("the {plugin} backend ({})", named.join(", "))
    }

    /// The registered object with a device id. A region lists its objects by consecutive ids; other lists are searched.
    fn registered_object(&self, device_id: u64) -> Option<&DescriptorEntry> {
        let is_it = |entry: &&DescriptorEntry| entry.device_id == device_id;
        let lists = || {
            let objects = self.registered.of_type(MemoryType::Object);
            objects.map(|segments| segments.list.entries())
        };
        let at_offset = |entries: &'_ [DescriptorEntry]| {
            let offset = device_id.checked_sub(entries.first()?.device_id)?;
            usize::try_from(offset).ok()
        };
        lists()
            .find_map(|entries| entries.get(at_offset(entries)?).filter(is_it))
            .or_else(|| lists().flatten().find(is_it))
    }

    fn ask(&self, object: DescriptorEntry, plugin: &str) -> StoreReply {
        let options = CallOptions { backends: vec![plugin.to_string()], ..CallOptions::default() };
        let list = Descriptors::new(MemoryType::Object, vec![object]);
        let found = list.and_then(|list| self.query(&list, &options));
        match found.ok().and_then(|found| found.first().map(Option::is_some)) {
            Some(true) => StoreReply::Exists,
            Some(false) => StoreReply::Missing,
            None => StoreReply::Failed,
        }
    }
}

impl StoreReply {
    /// Adds the likely cause to the error of a request.
    fn explain(&self, operation: Operation, error: Error) -> Error {
        match (self, operation) {
            (Self::Missing, Operation::Read) => error
                .followed_by("the store has no such object in the bucket, or no such bucket")
                .with_status(Status::NotFound),
            (Self::Exists, Operation::Read) => {
                error.followed_by("the object exists; it may be shorter than what was to be read")
            }
            (Self::Exists | Self::Missing, Operation::Write) => error.followed_by(
                "the store responds; check that the bucket exists, and that the access key may write to it",
            ),
            (Self::Failed, _) => error.followed_by(
                "the store was asked for the object, and does not respond or refuses the access key; check \
                 endpoint_override, scheme, region and the keys of the backend",
            ),
            (Self::NotAsked(silence), _) => error.followed_by(format!(
                "no request was completed for {:.0} s, in which NIXL's plugin repeated this one, so the store probably does not \
                 respond, and was not asked for the object; check that the store runs, and endpoint_override and scheme of the \
                 backend",
                silence.as_secs_f64()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error;

    #[test]
    fn the_cause_follows_from_what_the_store_says() {
        let silent = StoreReply::NotAsked(Duration::from_millis(25_600));
        for (reply, operation, status, part) in [
            (&StoreReply::Missing, Operation::Read, Status::NotFound, "no such object"),
            (&StoreReply::Missing, Operation::Write, Status::Nixl, "the bucket exists"),
            (&StoreReply::Exists, Operation::Read, Status::Nixl, "shorter"),
            (&StoreReply::Exists, Operation::Write, Status::Nixl, "the access key may write"),
            (
                &StoreReply::Failed,
                Operation::Read,
                Status::Nixl,
                "was asked for the object, and does not respond",
            ),
            (&StoreReply::Failed, Operation::Write, Status::Nixl, "refuses the access key"),
            (&silent, Operation::Read, Status::Nixl, "was completed for 26 s"),
            (&silent, Operation::Write, Status::Nixl, "was not asked for the object"),
        ] {
            let error = reply.explain(operation, error!(Nixl, "failed"));
            error.assert_is(status, part);
        }
    }
}
