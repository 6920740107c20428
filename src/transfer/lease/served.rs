// SPDX-License-Identifier: Apache-2.0
//! A lease that the owner of a served layout keeps for this process.
//!
//! Each side counts the duration by its own clock, and this one from before its request, so the owner keeps the lease for longer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::request::{EndTask, LeaseTask};
use super::terms::LeaseTerms;
use crate::base::{Mutex, ProcessIdentity, Result, Status, deadline_of, fail};
use crate::engine::peer::served::ServedOwner;
use crate::engine::peer::served::protocol::message::SessionKey;
use crate::layout::{Layout, Memory, RemoteMemory};
use crate::nixl;
use crate::region::{LeaseEnd, random};
use crate::run::{Granted, LeaseRequest, peer_leases};

/// Clocks of two machines run alike to a thousandth, by which a holder counts less than the owner.
const CLOCK_TOLERANCE: u32 = 1000;

pub struct ServedLease {
    owner: Arc<ServedOwner>,
    key: SessionKey,
    /// Keeps the metadata of the owner, and its agent.
    layout: Arc<Layout>,
    writes: bool,
    timeout: Option<Duration>,
    held: Mutex<Held>,
}

struct Held {
    /// Of the last request.
    number: u64,
    end: LeaseEnd,
}

impl ServedLease {
    /// Leases some blocks of a remote layout for at most as long as its owner keeps leases. The owner replies to this and to each renewal
    /// within a time.
    pub fn take(layout: &Arc<Layout>, blocks: &[u32], terms: LeaseTerms) -> Result<Self> {
        let LeaseTerms { writes, duration, timeout } = terms;
        let (remote, served) = match (layout.memory(), layout.served()) {
            (Memory::Remote(remote), Some(served)) if served.longest_lease > 0 => (remote, served),
            _ => fail!(
                Unsupported,
                "the layout is remote, and its owner keeps no leases of it: read its blocks with epochs, or have the owner serve the layout \
                 (kvmem_layout_serve) before it exports it"
            ),
        };
        let blocks = peer_leases::spans(layout, blocks)?;
        let deadline = remote.agent.call_deadline_before(deadline_of(timeout));
        let owner =
            nixl::within(deadline, || ServedOwner::new(served, &remote.peer, &remote.agent).map(Arc::new))?;
        let (key, held) = (SessionKey(random()?), Held { number: 0, end: LeaseEnd::passed() });
        let this = Self { owner, key, layout: layout.clone(), writes, timeout, held: Mutex::new(held) };
        let (asked, end) = this.asked(duration);
        let granted = this.ask(remote, 0, asked, blocks, deadline)?;
        this.held.lock().end = granted_end(end, asked, granted);
        Ok(this)
    }

    /// Has it end after a duration from now on. Fails if it is over. After another failure it ends at the earlier of both ends.
    pub fn renew(&self, duration: Option<Duration>) -> Result<()> {
        let Memory::Remote(remote) = self.layout.memory() else { return Ok(()) };
        let (asked, end) = self.asked(duration);
        let number = {
            let mut held = self.held.lock();
            held.end.ensure_to_come()?;
            // The owner may get the request, and this side no reply.
            (held.number, held.end) = (held.number + 1, held.end.min(end));
            held.number
        };
        let deadline = remote.agent.call_deadline_before(deadline_of(self.timeout));
        let reply = self.ask(remote, number, asked, Vec::new(), deadline);
        let mut held = self.held.lock();
        match &reply {
            Ok(granted) if held.number == number => held.end = granted_end(end, asked, *granted),
            Err(error) if error.status() == Status::Stale => held.end = LeaseEnd::passed(),
            // Another renewal was begun after this one.
            _ => {}
        }
        reply.map(drop)
    }

    /// The time until it ends: 0 if it is over.
    pub fn remaining(&self) -> Option<Duration> {
        self.held.lock().end.guaranteed()
    }

    /// What the owner is asked for, in milliseconds, and when the lease ends from now on, for this side.
    fn asked(&self, duration: Option<Duration>) -> (u32, LeaseEnd) {
        let most = Duration::from_millis(self.owner.served.longest_lease.into());
        let duration = duration.map_or(most, |duration| duration.min(most));
        let end = LeaseEnd::after(Some(duration - duration / CLOCK_TOLERANCE));
        (duration.as_nanos().div_ceil(1_000_000) as u32, end)
    }

    fn ask(
        &self,
        remote: &RemoteMemory,
        number: u64,
        milliseconds: u32,
        blocks: Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<Granted> {
        let (process, milliseconds) = (ProcessIdentity::current()?, milliseconds.into());
        let request = LeaseRequest { process, number, milliseconds, writes: self.writes, blocks };
        LeaseTask::ask(&self.owner, remote, (self.key, request), (self.timeout, deadline))
    }
}

impl Drop for ServedLease {
    /// Also after a request that has failed: the owner may have it. If it does not get the message, the lease ends after its duration.
    fn drop(&mut self) {
        if let (Memory::Remote(remote), Some(end)) =
            (self.layout.memory(), EndTask::new(&self.owner, self.key))
        {
            let _ = remote.agent.start(end);
        }
    }
}

/// The end for this side, of a lease that the owner may have granted for less than it was asked for.
fn granted_end(end: LeaseEnd, asked: u32, granted: Granted) -> LeaseEnd {
    end.earlier_by(Duration::from_millis(asked.saturating_sub(granted.milliseconds).into()))
}
