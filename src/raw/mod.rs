// SPDX-License-Identifier: Apache-2.0
//! Requests on raw descriptors: memory that is in no layout, also of peers that do not use kvmem.

mod prepared;
mod request;
mod raw_run;
mod segments;

pub use prepared::Prepared;
pub use request::{Request, RunOptions};
pub use segments::{Segments, View};

use std::sync::Arc;

use crate::base::{Result, lists};
use crate::nixl::{Agent, Descriptors, Owner};
use crate::region::{Region, Registration, RegistrationHold};

/// The objects of this process that own the memory of descriptors, and their registrations, which stay while this lives.
#[derive(Default)]
struct Holds {
    _registrations: Vec<RegistrationHold>,
    _owners: Vec<Owner>,
}

impl Holds {
    fn new(agent: &Arc<Agent>, descriptors: &Descriptors) -> Result<Self> {
        let address = |owner: &Owner| Arc::as_ptr(owner).addr();
        let mut owners =
            lists::collect(descriptors.entries().iter().filter_map(|entry| entry.owner.clone()))?;
        owners.sort_unstable_by_key(address);
        owners.dedup_by_key(|owner| address(owner));
        let mut registrations = Vec::new();
        for owner in &owners {
            let region = owner.clone().downcast::<Region>().ok();
            if let Some(registration) = region.and_then(|region| Registration::find(&region, agent)) {
                registrations.push(registration.hold()?);
            }
        }
        Ok(Self { _registrations: registrations, _owners: owners })
    }
}
