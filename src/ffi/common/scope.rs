// SPDX-License-Identifier: Apache-2.0
//! The handles that a call uses.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Result, ensure};

/// The handles that a call uses. They become unusable if the call panics.
#[derive(Default)]
pub struct Scope<'a> {
    /// The first handles, without an allocation: enough for nearly every call.
    first: [Cell<Option<&'a AtomicBool>>; 4],
    count: Cell<usize>,
    /// Further handles, of calls with arrays of handles.
    more: Cell<Vec<&'a AtomicBool>>,
}

impl<'a> Scope<'a> {
    /// Records a handle by its poison flag. Fails if there is no memory to record it.
    #[inline]
    pub fn uses(&self, poisoned: &'a AtomicBool) -> Result<()> {
        let count = self.count.get();
        let Some(slot) = self.first.get(count) else { return self.uses_more(poisoned) };
        slot.set(Some(poisoned));
        self.count.set(count + 1);
        Ok(())
    }

    #[cold]
    fn uses_more(&self, poisoned: &'a AtomicBool) -> Result<()> {
        let mut more = self.more.take();
        let grown = more.try_reserve(1);
        if grown.is_ok() {
            more.push(poisoned);
        }
        self.more.set(more);
        ensure!(grown.is_ok(), OutOfMemory, "there is no memory to record the handles of this call");
        Ok(())
    }

    /// Makes the handles unusable.
    #[cold]
    #[inline(never)]
    pub fn poison(&self) {
        let first = self.first.iter().filter_map(Cell::get);
        let more = self.more.take();
        first.chain(more).for_each(|poisoned| poisoned.store(true, Ordering::Release));
    }
}
