// SPDX-License-Identifier: Apache-2.0
//! What a broker publishes.

use std::sync::Arc;

use crate::error::Result;
use crate::region::Access;
use crate::share::parcel::Parcel;

/// What a name stands for.
pub trait Publication: Send + Sync {
    /// What a client gets whose token grants this access, and who asks for no more than that; `None` for all that may
    /// be had. Called on the broker's thread, with no lock held, each time a client fetches; no other client is served
    /// meanwhile.
    fn parcel(&self, granted: Access, asked: Option<Access>) -> Result<Arc<Parcel>>;
}
