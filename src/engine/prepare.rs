// SPDX-License-Identifier: Apache-2.0
//! From a plan to the engine that executes it.

use std::sync::Arc;

use super::preferences::{Ending, Preferences};
use super::{Engine, select};
use crate::base::Result;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::plan::alignment::ensure_io_alignment;
use crate::plan::overlap::ensure_apart;
use crate::run::TransferMethod;

/// Checks a plan, and prepares an engine for it: from the engine of an earlier plan between the same layouts if that has state that
/// does not depend on the blocks, otherwise a new one. No engine repeats the checks.
pub fn prepare(
    method: TransferMethod,
    sides @ [source, destination]: [&Arc<Layout>; 2],
    plan: Plan,
    preferences: &Preferences,
    ending: Ending,
    before: Option<&dyn Engine>,
) -> Result<Box<dyn Engine>> {
    ensure_io_alignment(source, destination, &plan, preferences.by_layer)?;
    ensure_apart(source, destination, &plan)?;
    let next = before.and_then(|before| before.prepare_next(&plan, preferences));
    next.unwrap_or_else(|| select::prepare(method, sides, plan, preferences, ending))
}
