// SPDX-License-Identifier: Apache-2.0
//! A lease of blocks, wherever their memory is: by locks of the kernel where it is mapped here, otherwise kept by an owner that serves it.

mod request;
mod served;
mod terms;

use std::sync::Arc;
use std::time::Duration;

use self::served::ServedLease;
pub use self::terms::LeaseTerms;
use crate::base::Result;
use crate::layout::Layout;
use crate::run::BlockLease;

pub enum Lease {
    Mapped(BlockLease),
    Served(ServedLease),
}

impl Lease {
    /// Leases some blocks.
    pub fn take(layout: &Arc<Layout>, blocks: &[u32], terms: LeaseTerms) -> Result<Self> {
        match layout.memory().is_remote() {
            true => ServedLease::take(layout, blocks, terms).map(Self::Served),
            false => BlockLease::take(layout, blocks, terms.writes, terms.duration).map(Self::Mapped),
        }
    }

    /// Has it end after a duration from now on. Fails if it is over.
    pub fn renew(&self, duration: Option<Duration>) -> Result<()> {
        match self {
            Self::Mapped(lease) => lease.renew(duration),
            Self::Served(lease) => lease.renew(duration),
        }
    }

    /// The time until it ends: 0 if it is over, `None` if it has no end.
    pub fn remaining(&self) -> Option<Duration> {
        match self {
            Self::Mapped(lease) => lease.remaining(),
            Self::Served(lease) => lease.remaining(),
        }
    }
}
