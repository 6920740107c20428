// SPDX-License-Identifier: Apache-2.0
//! Layouts of a directory that are mapped: their publisher offers a share at a broker, and a process of the same machine opens it.
//!
//! An entry proves nothing. The same machine is one with the same boot id on which the socket is reachable. The share is that of the
//! entry if the broker accepts its token, which only that broker knows, and if the process that created the share is the one that
//! exported the layout.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use once_cell::sync::OnceCell;
use serde_bytes::ByteBuf;

use super::broker::{Broker, Loan, Publication, Token, TokenTerms, address};
use super::client::{Fetch, fetch};
use super::import::may_be_elsewhere;
use super::{OpenOptions, Parcel, Reach, Share, ShareOptions, Transport};
use crate::base::{Error, ProcessIdentity, Result, Status, ensure, error, fail, log, random};
use crate::directory::{PublishedLayout, PublishedShare};
use crate::layout::Layout;
use crate::nixl::Agent;
use crate::region::Access;

/// Has a broker publish a share of a layout, until the loan is dropped.
pub fn offer(layout: &Arc<Layout>, grant: ShareOptions, broker: &Broker) -> Result<(PublishedShare, Loan)> {
    ensure!(
        grant.way != Transport::Remote,
        InvalidArgument,
        "transport is KVMEM_SHARE_REMOTE, and a broker is given to map the layout; set broker to NULL, or select another transport"
    );
    // Peers connect to the absolute path, which may be longer than that of the options.
    address(broker.path())?;
    let share = Arc::new(Share::from_layout(layout, grant)?);
    let name = format!("directory-{:032x}", u128::from_ne_bytes(random()?));
    let terms = TokenTerms { access: grant.access, max_uses: 0, lifetime: None };
    let (token, loan) = broker.lend(name.clone(), Arc::new(Published::new(&share)), &terms)?;
    let path = ByteBuf::from(broker.path().as_os_str().as_bytes());
    Ok((PublishedShare { broker: path, name, token: token.0 }, loan))
}

/// Opens a published layout: maps it, or accesses it by NIXL, which `import` does.
pub fn open_published(
    published: &PublishedLayout,
    opening: &OpenOptions,
    deadline: Option<Instant>,
    import: impl FnOnce(&Arc<Agent>) -> Result<Arc<Layout>>,
) -> Result<Arc<Layout>> {
    let by_nixl = |mapped: Option<Error>| {
        match (&opening.agent, opening.access) {
        (_, Some(Access::Read)) => Err(mapped.unwrap_or_else(|| {
            error!(Unsupported, "a layout that NIXL accesses cannot be opened with KVMEM_OPEN_READ_ONLY: NIXL has no read-only access")
        })),
        (Some(agent), _) => import(agent),
        (None, _) => Err(mapped.unwrap_or_else(|| {
            error!(InvalidArgument, "to access a layout by NIXL an agent is needed; agent is NULL")
        })),
    }
    };
    if opening.reach == Reach::Remote {
        return by_nixl(None);
    }
    match open_mapped(published, opening, deadline) {
        Err(error) if opening.reach == Reach::Auto && is_out_of_reach(&error) => {
            if opening.agent.is_some() {
                log!(Info, "layout '{}' is not mapped, and accessed by NIXL: {error}", published.name);
            }
            by_nixl(Some(error))
        }
        opened => opened,
    }
}

fn open_mapped(
    published: &PublishedLayout,
    opening: &OpenOptions,
    deadline: Option<Instant>,
) -> Result<Arc<Layout>> {
    let Some(offered) = &published.share else {
        fail!(
            Unsupported,
            "the agent offers no share of layout '{}'; let it publish the layout with a broker",
            published.name
        );
    };
    let publisher = exporter(published)?;
    let share =
        Share::from_parcel(fetch(&request(offered, opening, &publisher), deadline).map_err(elsewhere)?)?;
    let creator = &share.manifest().process;
    ensure!(
        *creator == publisher,
        Stale,
        "process {} has created the share, and process {} the entry; look the agent up again",
        creator.pid,
        publisher.pid
    );
    share.open_layout(&OpenOptions { reach: Reach::Mapped, ..opening.clone() })
}

/// The process that has published a layout, which must be of this machine, and not be known to have ended.
fn exporter(published: &PublishedLayout) -> Result<ProcessIdentity> {
    let Some(process) = Layout::exporter(&published.descriptor) else {
        fail!(Corrupt, "the descriptor of layout '{}' is damaged", published.name)
    };
    ensure!(
        process.boot_id == ProcessIdentity::current()?.boot_id,
        Unsupported,
        "layout '{}' is on another machine, or this one was restarted since",
        published.name
    );
    ensure!(
        !process.is_gone(),
        PeerLost,
        "process {}, which has published layout '{}', has ended; look its agent up again",
        process.pid,
        published.name
    );
    Ok(process)
}

fn request(offered: &PublishedShare, opening: &OpenOptions, publisher: &ProcessIdentity) -> Fetch {
    Fetch {
        path: PathBuf::from(OsStr::from_bytes(&offered.broker)),
        name: offered.name.clone(),
        token: Token(offered.token),
        access: opening.access,
        broker_user: None,
        broker_process: Some(publisher.clone()),
    }
}

/// Says what follows for the layout if its share could not be fetched.
fn elsewhere(error: Error) -> Error {
    match error.status() {
        // The publisher is not known to have ended, so NIXL may reach it.
        Status::PeerLost => error.with_status(Status::NotFound),
        // A file at the path is not that of the caller's argument.
        Status::InvalidArgument => error.with_status(Status::NotFound),
        Status::PermissionDenied => error.followed_by(
            "the publisher runs as another user, grants less, or has published again since: look it up again",
        ),
        _ => error,
    }
}

/// Whether NIXL may access a layout that could not be mapped.
fn is_out_of_reach(error: &Error) -> bool {
    may_be_elsewhere(error) || matches!(error.status(), Status::PermissionDenied | Status::Busy)
}

/// A published share. It exists as long as it is published.
pub struct Published {
    share: Arc<Share>,
    /// The parcel for read-only clients, created for the first of them.
    read_only: OnceCell<Arc<Parcel>>,
}

impl Published {
    pub fn new(share: &Arc<Share>) -> Self {
        Self { share: share.clone(), read_only: OnceCell::new() }
    }
}

impl Publication for Published {
    fn parcel(&self, granted: Access, asked: Option<Access>) -> Result<Arc<Parcel>> {
        let shared = self.share.manifest().access;
        let access = asked.unwrap_or(granted.min(shared));
        ensure!(access <= shared, PermissionDenied, "the share is read-only");
        if access == shared {
            return Ok(self.share.parcel().clone());
        }
        self.read_only.get_or_try_init(|| self.share.read_only().map(Arc::new)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{AllocationConfig, Arrangement, Dimensions, Locality, sample_descriptor};
    use crate::region::{FutureWrites, SystemConfig};
    use crate::share::broker::BrokerConfig;

    const READ: ShareOptions =
        ShareOptions { access: Access::Read, way: Transport::Auto, writes: FutureWrites::Allowed };

    fn layout() -> Arc<Layout> {
        let memory = AllocationConfig::System(SystemConfig { shareable: true, ..SystemConfig::default() });
        Layout::allocate(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS, memory).unwrap()
    }

    fn broker(name: &str) -> Broker {
        let file = format!("kvmem-{name}-{}", std::process::id());
        Broker::start(BrokerConfig::at(std::env::temp_dir().join(file))).unwrap()
    }

    fn published(process: ProcessIdentity, share: Option<PublishedShare>) -> PublishedLayout {
        PublishedLayout { name: "cache".into(), descriptor: ByteBuf::from(sample_descriptor(process)), share }
    }

    fn open(published: &PublishedLayout) -> Result<Arc<Layout>> {
        let until = Instant::now() + std::time::Duration::from_secs(30);
        open_published(published, &OpenOptions::default(), Some(until), |_| unreachable!("there is no agent"))
    }

    #[test]
    fn an_offer_is_opened_until_it_is_dropped() {
        let (layout, broker) = (layout(), broker("offer"));
        let (share, loan) = offer(&layout, READ, &broker).unwrap();
        let own = published(ProcessIdentity::current().unwrap(), Some(share));
        let opened = open(&own).unwrap();
        assert_eq!(opened.region(0).unwrap().address(), layout.region(0).unwrap().address());
        assert_eq!(opened.memory().locality(), Locality::Local);
        drop(loan);
        open(&own).err().unwrap().assert_is(Status::PermissionDenied, "published again");
        assert_eq!(broker.info().publications, 0);
        let (share, loan) = offer(&layout, READ, &broker).unwrap();
        drop(broker);
        drop(loan);
        let of_ended = published(ProcessIdentity::current().unwrap(), Some(share));
        assert_eq!(open(&of_ended).err().unwrap().status(), Status::NotFound);
    }

    #[test]
    fn the_share_is_that_of_the_process_of_the_entry() {
        let (layout, broker) = (layout(), broker("process"));
        let (share, _loan) = offer(&layout, READ, &broker).unwrap();
        let current = ProcessIdentity::current().unwrap();
        let status = |process, share: &Option<PublishedShare>| {
            open(&published(process, share.clone())).err().unwrap().status()
        };
        let share = Some(share);
        let elsewhere = ProcessIdentity { boot_id: "another".into(), ..current.clone() };
        assert_eq!(status(elsewhere, &share), Status::Unsupported);
        let ended = ProcessIdentity { start_time: current.start_time + 1, ..current.clone() };
        assert_eq!(status(ended, &share), Status::PeerLost);
        // In a PID namespace that is not visible here, only the share shows which process it is.
        let other = ProcessIdentity { pid_namespace: current.pid_namespace + 1, ..current.clone() };
        assert_eq!(status(other, &share), Status::Stale);
        assert_eq!(status(current, &None), Status::Unsupported);
    }
}
