// SPDX-License-Identifier: Apache-2.0
//! The driver's virtual memory management: addresses are reserved, memory is created or comes from elsewhere, and the
//! two are mapped, each on its own. None of it needs a current context.

mod foreign;
mod handles;
mod mapping;
mod memory;
mod properties;
mod range;
mod shareable;
mod walk;

pub use foreign::describe_fd;
pub use handles::{can_export, try_export};
pub use mapping::{Access, Mapping};
pub use memory::Memory;
pub use properties::{Granularity, Location, Properties};
pub use range::Range;
pub use shareable::{Exported, HandleType, Shareable};
pub use walk::{Beneath, beneath};

pub(super) use mapping::RawAccess;
pub(super) use properties::{RawLocation, RawProperties};
