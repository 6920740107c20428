// SPDX-License-Identifier: Apache-2.0
//! The control block of a peer's elastic memory, as NIXL copies it to memory of this process.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::{Control, Region, Registration, RegistrationHold, SystemConfig};
use crate::base::{Result, ensure};
use crate::nixl::{Agent, Descriptor, Span};

/// A local copy of a control block, and the expected state of the extents that are used.
pub struct WatchedControl {
    copy: RegistrationHold,
    control: Descriptor,
    used: Vec<(usize, u32)>,
}

impl WatchedControl {
    /// With the extents that are used, and how often each had changed.
    pub fn new(agent: &Arc<Agent>, control: Descriptor, used: Vec<(usize, u32)>) -> Result<Self> {
        let config = SystemConfig { size: control.size, ..SystemConfig::default() };
        let copy = Registration::create(&Region::system(&config)?, agent)?.hold()?;
        Ok(Self { copy, control, used })
    }

    /// The copy here, and the block there.
    pub fn spans(&self) -> (Span, Span) {
        let span = |address| Span { address, size: self.control.size, device_id: 0 };
        (span(self.copy.region().address()), span(self.control.address))
    }

    /// Forgets the last copy, before another is read.
    pub fn forget(&self) {
        // SAFETY: registered host memory that this object holds, of at least the size of a block. NIXL writes to it later.
        unsafe { Control::forget_copy(self.copy.region().address()) };
    }

    /// Fails if the last copy differs from the expected state.
    pub fn check(&self) -> Result<()> {
        let region = self.copy.region();
        for (index, changes) in &self.used {
            // SAFETY: registered host memory that this object holds. NIXL has written it before this is called.
            let now = unsafe { Control::changes_in_copy(region.address(), region.size(), *index) };
            ensure!(
                now.is_some(),
                Stale,
                "NIXL has read no control block of the owner: the owner has freed its memory, or nothing was moved"
            );
            ensure!(
                now == Some(*changes),
                Stale,
                "the owner has decommitted extent {index} since it exported the layout; the owner must export the layout again"
            );
        }
        Ok(())
    }
}
