// SPDX-License-Identifier: Apache-2.0
//! The contexts that adopted memory goes with: a kernel that touched what was lost would take the GPU's primary context
//! along, so that the driver is asked before anything runs.

use crate::cuda::memory::Sighting;
use crate::error::Result;
use crate::layout::Layout;
use crate::region::Backing;

/// One allocation of each context: asking of one tells whether the context is alive, and costs a run no more where a
/// layout has many regions.
pub struct Contexts(Vec<Sighting>);

impl Contexts {
    /// Those of the memory of some layouts.
    pub fn of<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> Self {
        let mut sightings: Vec<Sighting> = Vec::new();
        for region in layouts.into_iter().flat_map(|layout| layout.memory().regions()) {
            let Backing::Device(memory) = region.root() else { continue };
            let Some(found) = memory.sighting() else { continue };
            if !sightings.iter().any(|known| known.is_of_context_of(&found)) {
                sightings.push(found);
            }
        }
        Self(sightings)
    }

    /// Refuses memory that went with one of them.
    pub fn ensure_alive(&self) -> Result<()> {
        self.0.iter().try_for_each(Sighting::ensure_still)
    }
}
