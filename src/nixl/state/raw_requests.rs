// SPDX-License-Identifier: Apache-2.0
//! Requests and prepared lists of raw descriptors, with the caller's options, and what NIXL reports about a request.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;
use std::time::{Duration, Instant};

use super::AgentState;
use crate::base::{Count, Error, Result, Status, ensure, error, lists};
use crate::nixl::arguments::{Arguments, CallOptions};
use crate::nixl::backend::Backend;
use crate::nixl::call::check;
use crate::nixl::descriptor::{MemoryType, describe};
use crate::nixl::descriptors::Descriptors;
use crate::nixl::new_request::{NewRequest, RequestSource};
use crate::nixl::raw_descriptors::CostEstimate;
use crate::nixl::remote::Connecting;
use crate::nixl::request_handle::{ListId, RawSpans, RequestId, RequestSide, RequestState, Span};
use crate::nixl::sys;

impl AgentState {
    /// The side of a request that an agent's memory is, for the remote side: a peer's, or the agent's own for files.
    pub fn side_of(&mut self, agent: &str) -> Result<RequestSide> {
        if agent.as_bytes() == self.name.to_bytes() {
            return Ok(RequestSide::Own);
        }
        let remote = self.remote(agent)?;
        remote.ensure_valid()?;
        Ok(RequestSide::Peer(remote))
    }

    /// Prepares a list of the memory of an agent or, without a name, of the local side.
    pub fn prepare_of(
        &mut self,
        owner: Option<&str>,
        list: &Descriptors,
        options: &CallOptions,
    ) -> Result<(ListId, RequestSide)> {
        let side = owner.map_or(Ok(RequestSide::Local), |name| self.side_of(name))?;
        Ok((self.prepare_raw(&side, list, options)?, side))
    }

    /// Creates a request on raw descriptors. Also returns its side, and the storage that it uses.
    pub fn create_of(&mut self, new: &NewRequest) -> Result<(RequestId, RequestSide, Option<String>)> {
        let (id, side) = match &new.source {
            RequestSource::Owner(name) => {
                let side = self.side_of(name)?;
                (self.create_raw(new, &side)?, side)
            }
            RequestSource::Prepared([local, remote]) => {
                let side = self.lists.get(&remote.0).map_or(RequestSide::Local, |list| list.side.clone());
                let sides = ((local.0, &local.1[..]), (remote.0, &remote.1[..]));
                let is_object = new.remote.memory_type() == MemoryType::Object;
                let objects =
                    new.remote.entries().iter().filter(|_| is_object).map(|object| object.device_id);
                let made = self.make_request(new.operation, sides.0, sides.1, objects, &new.options);
                (made.map_err(|error| explain(error, &side))?, side)
            }
        };
        // The remote side is memory of this agent, too, if the request is to the agent itself.
        let is_own = !matches!(side, RequestSide::Peer(_));
        let own = [&new.local].into_iter().chain(is_own.then_some(&new.remote)).map(raw_spans);
        match own.collect::<Result<_>>() {
            Ok(own) => self.request(id)?.own = own,
            Err(error) => {
                self.release_request(id)?;
                return Err(error);
            }
        }
        let storage = if new.names_storage { self.storage_of(id, &new.remote) } else { None };
        Ok((id, side, storage))
    }

    /// Prepares a list, and names the descriptor that NIXL does not find.
    pub fn prepare_raw(
        &mut self,
        side: &RequestSide,
        list: &Descriptors,
        options: &CallOptions,
    ) -> Result<ListId> {
        let own = match side {
            RequestSide::Peer(_) => None,
            RequestSide::Local | RequestSide::Own => Some(raw_spans(list)?),
        };
        let id = self.prepare_range(side, list, 0..list.entries().len(), options).map_err(|error| {
            let named = match error.status() {
                Status::NotFound => self.name_unresolved(error, side, list, options),
                _ => error,
            };
            explain(named, side)
        })?;
        if let Some(prepared) = self.lists.get_mut(&id) {
            prepared.own = own;
        }
        Ok(id)
    }

    /// Prepares some of the descriptors of a list.
    fn prepare_range(
        &mut self,
        side: &RequestSide,
        list: &Descriptors,
        range: Range<usize>,
        options: &CallOptions,
    ) -> Result<ListId> {
        let spans = list.spans().skip(range.start).take(range.len());
        self.prepare_list(side, (list.memory_type(), spans), options)
    }

    /// Adds to NOT_FOUND of a list which descriptor is the first that NIXL does not find. NIXL does not report it: parts of the
    /// list are prepared, which takes together about as long as the list.
    fn name_unresolved(
        &mut self,
        error: Error,
        side: &RequestSide,
        list: &Descriptors,
        options: &CallOptions,
    ) -> Error {
        let count = list.entries().len();
        let mut is_found = |range| match self.prepare_range(side, list, range, options) {
            Ok(id) => {
                self.release_list(id);
                true
            }
            Err(_) => false,
        };
        // The descriptors before `found` are found together, those before `failed` are not.
        let (mut found, mut failed) = (0, count);
        while failed - found > 1 {
            let middle = found + (failed - found) / 2;
            if is_found(0..middle) { found = middle } else { failed = middle }
        }
        let Some(first) = list.descriptors().nth(found) else { return error };
        let reason = match side {
            _ if found > 0 && is_found(found..failed) => "has no backend in common with those before it",
            RequestSide::Peer(_) => "is the first that the loaded metadata does not cover",
            RequestSide::Local | RequestSide::Own => "is the first that is not registered",
        };
        error.followed_by(format!("descriptor {found} of {count}, {}, {reason}", describe(&first)))
    }

    /// Like [`Self::create_request`], with options.
    fn create_raw(&mut self, new: &NewRequest, side: &RequestSide) -> Result<RequestId> {
        let NewRequest { operation, local, remote, options, .. } = new;
        let here = (local.memory_type(), local.spans());
        let there = (side, remote.memory_type(), remote.spans());
        self.new_request(*operation, here, there, options).map_err(|error| {
            if error.status() == Status::Stale {
                return error;
            }
            let lists = [(&RequestSide::Local, local), (side, remote)];
            let error = self.unresolved(lists, options).unwrap_or_else(|| explain(error, side));
            match remote.memory_type() {
                MemoryType::Block => self.explain_refused(error, local.memory_type(), local.spans()),
                _ => error,
            }
        })
    }

    /// Why NIXL does not create a request, if one of its lists is the cause. NIXL returns one code for all causes, but a
    /// list that cannot be prepared alone has memory that is not registered, or not in the loaded metadata.
    fn unresolved(
        &mut self,
        lists: [(&RequestSide, &Descriptors); 2],
        options: &CallOptions,
    ) -> Option<Error> {
        let options = CallOptions { backends: options.backends.clone(), ..CallOptions::default() };
        lists.into_iter().find_map(|(side, list)| match self.prepare_raw(side, list, &options) {
            Ok(id) => {
                self.release_list(id);
                None
            }
            Err(error) => (error.status() == Status::NotFound).then(|| error.context("create a request")),
        })
    }

    /// Releases the requests and prepared lists that use some of the agent's memory, before the memory is deregistered: NIXL
    /// keeps pointers to its registration in them. Fails if one of the requests is in flight.
    pub(super) fn release_users_of(
        &mut self,
        memory_type: MemoryType,
        memory: impl Iterator<Item = Span>,
    ) -> Result<()> {
        let has_raw = self.requests.values().any(|request| !request.own.is_empty())
            || self.lists.values().any(|list| list.own.is_some());
        if !has_raw {
            return Ok(());
        }
        let memory = SortedSpans::new(memory)?;
        let uses = |(used_type, spans): &RawSpans| {
            *used_type == memory_type && spans.iter().any(|span| memory.overlaps(span))
        };
        let users = self.requests.iter().filter(|(_, request)| request.own.iter().any(uses));
        let users: Vec<_> = users.map(|(id, request)| (*id, request.state)).collect();
        let in_flight = users.iter().filter(|(_, state)| *state == RequestState::InFlight).count();
        ensure!(
            in_flight == 0,
            Busy,
            "{} in flight on the memory; wait for the end, then deregister again",
            Count(in_flight as u64, "request")
        );
        let lists = self.lists.iter().filter(|(_, list)| list.own.iter().any(uses));
        let lists: Vec<_> = lists.map(|(id, _)| *id).collect();
        users.into_iter().try_for_each(|(id, _)| self.release_request(id))?;
        lists.into_iter().for_each(|id| self.release_list(id));
        Ok(())
    }

    /// Like [`Self::post`]. Options replace the notification of the request.
    pub fn post_raw(&mut self, id: RequestId, options: Option<&CallOptions>) -> Result<bool> {
        let arguments = match options {
            Some(options) => self.arguments(options)?,
            None => Arguments::default(),
        };
        let agent = self.agent;
        let mut request = self.request(id)?;
        if request.repeats_with_storage() {
            self.ensure_repeatable(id)?;
            request = self.request(id)?;
        }
        ensure!(request.state == RequestState::Idle, InvalidState, "the request is in flight, or has failed");
        if let RequestSide::Peer(remote) = &request.remote {
            remote.ensure_connectable(Connecting::Post)?;
        }
        request.was_posted = true;
        if let Some(objects) = &mut request.objects {
            objects.posted = Some(Instant::now());
        }
        // SAFETY: live handles; without optional arguments nothing of the request changes.
        let status = unsafe { sys::nixl_capi_post_xfer_req(agent, request.raw, arguments.raw()) };
        request.state = RequestState::from_status(status);
        if let (RequestSide::Peer(remote), true) = (&request.remote, status >= 0) {
            remote.note_connected(Connecting::Post);
        }
        let has_reply = request.has_reply_of_store();
        self.note_state(id);
        if has_reply {
            self.note_reply(id);
        }
        check(status, || "post a request".to_string()).map_err(|error| self.stale_if_missing(id, error))?;
        Ok(status == sys::NIXL_CAPI_SUCCESS)
    }

    #[cold]
    fn ensure_repeatable(&mut self, id: RequestId) -> Result<()> {
        ensure!(
            !self.is_single_use(id),
            InvalidState,
            "NIXL's plugin cannot run a request again; create another request"
        );
        Ok(())
    }

    /// NIXL's estimate of the duration of a request.
    pub fn estimate(&mut self, id: RequestId, options: &CallOptions) -> Result<CostEstimate> {
        let arguments = self.arguments(options)?;
        let agent = self.agent;
        let request = self.request(id)?.raw;
        let (mut duration, mut margin, mut method) = (0, 0, 0);
        // SAFETY: live handles, writable outputs.
        let status = unsafe {
            sys::nixl_capi_estimate_xfer_cost(
                agent,
                request,
                arguments.raw(),
                &mut duration,
                &mut margin,
                &mut method,
            )
        };
        check(status, || "estimate the duration of a request".to_string())?;
        Ok(CostEstimate { duration: microseconds(duration), margin: microseconds(margin), method })
    }

    /// The plugin of the backend that NIXL chose for a request.
    pub fn backend_of(&mut self, id: RequestId) -> Result<String> {
        self.chosen_backend(id).map(|(plugin, _)| plugin.clone())
    }

    /// The backend that NIXL chose for a request, and its plugin.
    pub(super) fn chosen_backend(&mut self, id: RequestId) -> Result<(&String, &mut Backend)> {
        let agent = self.agent;
        let request = self.request(id)?.raw;
        let mut backend = ptr::null_mut();
        // SAFETY: live handles; the output is ours on success.
        let status = unsafe { sys::nixl_capi_query_xfer_backend(agent, request, &mut backend) };
        check(status, || "get the backend of a request".to_string())?;
        // A second handle of a backend that the agent has.
        let chosen = Backend::around(backend);
        let unknown = || error!(Nixl, "NIXL chose a backend that the agent does not have");
        self.backends.iter_mut().find(|(_, known)| known.is_same(&chosen)).ok_or_else(unknown)
    }
}

/// NOT_FOUND of a peer that is known means that its metadata does not cover the memory.
fn explain(error: Error, side: &RequestSide) -> Error {
    let error = match (error.status(), side) {
        (Status::NotFound, RequestSide::Local | RequestSide::Own) => {
            error.followed_by("memory of the agent must be registered first, with a backend that both sides have")
        }
        (Status::NotFound, RequestSide::Peer(_)) => error.followed_by(
            "the loaded metadata must cover the memory of the peer, and a backend must reach it: the owner gets its metadata \
             after it has registered the memory, then load it here",
        ),
        _ => error,
    };
    match side {
        RequestSide::Peer(remote) => remote.explain(error),
        RequestSide::Local | RequestSide::Own => error,
    }
}

fn raw_spans(list: &Descriptors) -> Result<RawSpans> {
    Ok((list.memory_type(), lists::collect(list.spans())?))
}

/// Spans by device and address, each with the largest end of those up to it.
struct SortedSpans(Vec<(u64, u64, u64)>);

impl SortedSpans {
    fn new(spans: impl Iterator<Item = Span>) -> Result<Self> {
        let ends = spans.map(|span| (span.device_id, span.address, span.address.saturating_add(span.size)));
        let mut sorted = lists::collect(ends)?;
        sorted.sort_unstable();
        for index in 1..sorted.len() {
            if sorted[index - 1].0 == sorted[index].0 {
                sorted[index].2 = sorted[index].2.max(sorted[index - 1].2);
            }
        }
        Ok(Self(sorted))
    }

    fn overlaps(&self, span: &Span) -> bool {
        let end = span.address.saturating_add(span.size);
        let before = self.0.partition_point(|(device, start, _)| (*device, *start) < (span.device_id, end));
        let last = before.checked_sub(1).map(|index| self.0[index]);
        last.is_some_and(|(device, _, end)| device == span.device_id && end > span.address)
    }
}

fn microseconds(value: i64) -> Duration {
    Duration::from_micros(value.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_share_a_byte_of_a_device_overlap() {
        let span = |device_id, address, size| Span { address, size, device_id };
        let sorted =
            SortedSpans::new([span(0, 100, 50), span(0, 0, 90), span(0, 10, 5), span(2, 0, 10)].into_iter())
                .unwrap();
        for (other, expected) in [
            (span(0, 89, 1), true),
            (span(0, 90, 10), false),
            (span(0, 95, 6), true),
            (span(0, 149, 1), true),
            (span(0, 150, u64::MAX), false),
            (span(1, 0, 200), false),
            (span(2, 9, 1), true),
            (span(2, 10, 1), false),
        ] {
            assert_eq!(sorted.overlaps(&other), expected, "{other:?}");
        }
    }
}
