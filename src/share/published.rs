// SPDX-License-Identifier: Apache-2.0
//! A share that a broker publishes.

use std::sync::Arc;

use once_cell::sync::OnceCell;

use super::broker::Publication;
use super::{Parcel, Share};
use crate::base::{Result, ensure};
use crate::region::Access;

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
