// SPDX-License-Identifier: Apache-2.0
//! The entries that a client keeps published.

use std::time::Duration;

use serde_bytes::ByteBuf;

use super::{Client, MAX_WAIT};
use crate::protocol::{DECISION_RESTORE, DECISION_YIELD, Failure, Message, Value};
use crate::session::{Result, Session, Stored, status};

/// An entry that is kept published.
pub(super) struct Own {
    pub(super) presence: ByteBuf,
    entry: ByteBuf,
    /// The revision that it was stored at last. Events up to it are older, or of that.
    pub(super) revision: i64,
    /// Another process has published the name. Its entry remains.
    is_yielded: bool,
    /// The caller has withdrawn it, and no server has confirmed that yet. It is not restored, and removed when a server is reached.
    is_withdrawn: bool,
    /// The watches of its presence and its entry in this session, by which its loss is noticed.
    pub(super) watches: Option<[i64; 2]>,
}

impl Own {
    /// Whether it is to be stored.
    pub(super) fn is_kept(&self) -> bool {
        !self.is_yielded && !self.is_withdrawn
    }
}

impl Client {
    /// Publishes again what is missing, with a lease that is kept alive. Entries of an earlier lease get this one.
    pub(super) async fn restore_published(&mut self) -> Result<()> {
        if !self.published.values().any(Own::is_kept) {
            return Ok(());
        }
        self.renew_lease().await
    }

    /// Keeps the present lease alive over this connection, or gets another one for all entries.
    pub(super) async fn renew_lease(&mut self) -> Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        self.lease = session.lease(self.lease, self.options.lease_seconds, &self.losses.0).await?;
        self.lease_slot.set(Some((session.client.clone(), self.lease)));
        let own = self.published.iter().filter(|(_, own)| own.is_kept());
        let names: Vec<_> = own.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.restore_one(&name).await?;
            self.guard(&name).await?;
        }
        Ok(())
    }

    async fn restore_one(&mut self, name: &str) -> Result<()> {
        let Some(session) = &self.session else { return Ok(()) };
        let stored = session.stored(name).await?;
        self.settle(name, stored).await
    }

    /// Publishes an entry of this process again, if it is missing, damaged, or of an earlier lease. What is foreign is reported.
    pub(super) async fn settle(&mut self, name: &str, stored: Stored) -> Result<()> {
        let Stored { presence: found, entry_revision, .. } = stored;
        let (Some(own), Some(session)) = (self.published.get_mut(name), &self.session) else { return Ok(()) };
        if !own.is_kept() {
            return Ok(());
        }
        let (revision, is_whole) = match &found {
            Some(pair) if pair.value() != own.presence.as_slice() => {
                let value = session.keys().presence_value(pair.value());
                return self.meet_foreign(name, value).await;
            }
            Some(pair) => (pair.mod_revision(), pair.mod_revision() == entry_revision),
            None => (0, false),
        };
        let has_lease = found.is_some_and(|pair| pair.lease() == self.lease);
        if is_whole && has_lease && revision == own.revision {
            return Ok(());
        }
        self.store_again(name, revision, !is_whole).await
    }

    /// Stores an entry again, if its presence has not changed since `revision`. If it has, the watch reports that.
    async fn store_again(&mut self, name: &str, revision: i64, is_damaged: bool) -> Result<()> {
        let (Some(own), Some(session)) = (self.published.get_mut(name), &self.session) else { return Ok(()) };
        let stored = session.put_if(name, &own.presence, &own.entry, self.lease, revision).await?;
        if let Some(revision) = stored {
            own.revision = revision;
            if is_damaged {
                self.note_restored(name);
            }
        }
        Ok(())
    }

    fn note_restored(&self, name: &str) {
        self.sink.send(&Message::Log(format!(
            "the entry of {name} was missing or damaged, and is published again"
        )));
        self.sink.send(&Message::Restored(name.to_string()));
    }

    /// Watches a name that is published here, so that its loss is noticed.
    pub(super) async fn guard(&mut self, name: &str) -> Result<()> {
        if self.published.get(name).is_none_or(|own| own.watches.is_some()) {
            return Ok(());
        }
        let Some(session) = &mut self.session else { return Ok(()) };
        let stored = session.stored(name).await?;
        let presence = session.watch(Some(name), stored.revision + 1).await?;
        let entry = session.watch_entry(name, stored.revision + 1).await?;
        if let Some(own) = self.published.get_mut(name) {
            own.watches = Some([presence, entry]);
        }
        // The watch does not report what has changed between the publication and its first revision.
        self.settle(name, stored).await
    }

    /// Another value is stored under a name that is published here: asks what to do, and does it.
    pub(super) async fn meet_foreign(&mut self, name: &str, value: Value) -> Result<()> {
        let (Some(own), Some(session)) = (self.published.get_mut(name), &self.session) else { return Ok(()) };
        let message = Message::Foreign { name: name.to_string(), own: own.presence.clone(), value };
        match self.sink.send(&message) {
            DECISION_YIELD => own.is_yielded = true,
            DECISION_RESTORE => {
                if let Some(found) = session.presence(name, MAX_WAIT).await? {
                    return self.store_again(name, found.mod_revision(), true).await;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes an entry of this process again whose value was removed or changed, but not if its presence was changed too:
    /// that is another event.
    pub(super) async fn restore_entry(&mut self, name: &str) -> Result<()> {
        let (Some(own), Some(session)) = (self.published.get(name), &self.session) else { return Ok(()) };
        let stored = session.stored(name).await?;
        match &stored.presence {
            Some(pair) if pair.value() == own.presence.as_slice() => self.settle(name, stored).await,
            _ => Ok(()),
        }
    }

    pub(super) async fn publish(
        &mut self,
        name: &str,
        presence: ByteBuf,
        entry: ByteBuf,
        limit: Duration,
    ) -> Result<()> {
        // A keeper ends with its connection, which may have had nothing published when it was replaced.
        if !self.session.as_ref().is_some_and(Session::keeps_lease) {
            self.renew_lease().await?;
        }
        let put = async |client: &Self| match &client.session {
            Some(session) => session.put(name, &presence, &entry, client.lease, limit).await,
            None => Ok(0),
        };
        let mut stored = put(self).await;
        if stored.as_ref().is_err_and(|failure| failure.message.contains("lease not found")) {
            self.renew_lease().await?;
            stored = put(self).await;
        }
        let watches = self.published.get(name).and_then(|own| own.watches);
        let (is_yielded, is_withdrawn) = (false, false);
        let own = Own { presence, entry, revision: stored?, is_yielded, is_withdrawn, watches };
        self.published.insert(name.to_string(), own);
        Ok(())
    }

    /// Has an entry never restored from now on, also if no server is reached.
    pub(super) fn begin_withdrawal(&mut self, name: &str) {
        if let Some(own) = self.published.get_mut(name) {
            own.is_withdrawn = true;
        }
    }

    /// Removes what was withdrawn while no server responded. The lease of the earlier connection identifies it.
    pub(super) async fn withdraw_again(&mut self) -> Result<()> {
        let withdrawn = self.published.iter().filter(|(_, own)| own.is_withdrawn && !own.is_yielded);
        let names: Vec<_> = withdrawn.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.remove(&name, MAX_WAIT).await?;
        }
        Ok(())
    }

    /// Also removes what is not known to be published: a server may execute a publication after its limit.
    pub(super) async fn withdraw(&mut self, name: &str, limit: Duration) -> Result<()> {
        if self.remove(name, limit).await? {
            return Ok(());
        }
        let message = "another process has published an agent of that name since".to_string();
        Err(Failure { status: status::STALE, message })
    }

    /// Removes an entry, and forgets it. Returns whether it is not that of another process.
    async fn remove(&mut self, name: &str, limit: Duration) -> Result<bool> {
        let is_yielded = self.published.get(name).is_some_and(|own| own.is_yielded);
        let removed = match &self.session {
            Some(session) if self.lease != 0 && !is_yielded => {
                session.remove(name, self.lease, limit).await?
            }
            _ => !is_yielded,
        };
        let own = self.published.remove(name);
        if let Some(session) = &mut self.session {
            for id in own.and_then(|own| own.watches).into_iter().flatten() {
                session.unwatch(id).await;
            }
        }
        Ok(removed)
    }
}
