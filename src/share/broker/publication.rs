// SPDX-License-Identifier: Apache-2.0
//! The objects that a broker publishes.

use std::sync::Arc;

use crate::base::Result;
use crate::region::Access;
use crate::share::parcel::Parcel;

/// The object published under a name.
pub trait Publication: Send + Sync {
    /// Returns the parcel for a client whose token grants this access. `asked` is the requested access, which does not exceed
    /// the granted one; `None` requests all that is granted. Called on the broker's thread for each fetch, with no lock
    /// held; no other client is served during the call.
    fn parcel(&self, granted: Access, asked: Option<Access>) -> Result<Arc<Parcel>>;
}
