// SPDX-License-Identifier: Apache-2.0
//! What a run keeps until its end.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::base::file_systems::Blockers;
use crate::base::sorting::few_distinct;
use crate::layout::Layout;
use crate::nixl::RemoteHold;
use crate::region::ExtentHold;

/// The objects of the caller that a run holds.
#[derive(Default)]
pub struct RunHolds {
    /// The source and the destination.
    pub layouts: Option<[Arc<Layout>; 2]>,
    /// The extents of both layouts that it accesses.
    pub extents: [Option<ExtentHold>; 2],
    /// The peer's metadata, which must stay loaded.
    pub peer: Option<RemoteHold>,
}

impl RunHolds {
    /// The memory on devices that it holds: ordinals and bytes.
    pub(super) fn device_memory(&self) -> Vec<(i32, u64)> {
        let regions = self.layouts.iter().flatten().flat_map(|layout| layout.memory().regions());
        let memory = regions.filter_map(|region| {
            let (address, bytes) = region.committed();
            Some(((region.ordinal()?, address), bytes))
        });
        largest_at_each(memory.collect())
    }

    /// Drops all of it, except layouts of which it was the last holder: freeing their memory may take long, and the thread that ends
    /// a run may have to end others. Looking at the number of holders before would not do: another thread can drop the handle after that.
    pub(super) fn release(self) -> Vec<Layout> {
        drop((self.extents, self.peer));
        self.layouts.into_iter().flatten().filter_map(Arc::into_inner).collect()
    }
}

/// The ordinals and bytes of memory at distinct places. Views of a region can start at the same address: the largest contains the others.
fn largest_at_each(mut memory: Vec<((i32, u64), u64)>) -> Vec<(i32, u64)> {
    memory.sort_unstable_by_key(|(place, bytes)| (*place, Reverse(*bytes)));
    memory.dedup_by_key(|(place, _)| *place);
    memory.into_iter().map(|((ordinal, _), bytes)| (ordinal, bytes)).collect()
}

/// What freeing layouts may wait for.
pub(super) fn blockers(layouts: &[Layout]) -> Blockers {
    let file_systems = layouts.iter().map(Layout::file_systems).find(|file_systems| !file_systems.is_empty());
    Blockers {
        devices: few_distinct(layouts.iter().flat_map(Layout::devices).copied()),
        file_systems: file_systems.cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::layout::cache::LayoutCache;
    use crate::layout::{Arrangement, Dimensions};
    use crate::run::{Account, Completion, Ticket};

    static KEPT: LayoutCache<FreedWith> = LayoutCache::new();

    /// Reports the name of the thread that frees its layout.
    struct FreedWith(Sender<Option<String>>);

    impl Drop for FreedWith {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().name().map(str::to_string));
        }
    }

    #[test]
    fn of_views_at_one_address_the_largest_is_counted() {
        let (small, large, all) = (((0, 4096), 1), ((0, 4096), 3), [(0, 3), (0, 5), (1, 2)]);
        let others = [((1, 4096), 2), ((0, 8192), 5)];
        for views in [[small, large], [large, small]] {
            assert_eq!(largest_at_each([others, views].concat()), all);
        }
    }

    /// As the handle that another thread destroys just before the run ends.
    #[test]
    fn another_thread_frees_a_layout_of_which_a_run_is_the_last_holder_and_the_end_is_reported_after_that() {
        let layout = || Layout::in_host(Dimensions::small(), Arrangement::FULLY_CONTIGUOUS);
        let (last, kept) = (layout(), layout());
        let (sender, freed) = channel();
        KEPT.put(&last, Arc::new(FreedWith(sender)));
        let completion = Arc::new(Completion::new(1, None));
        assert!(completion.claim());
        let held = RunHolds { layouts: Some([kept.clone(), last]), ..RunHolds::default() };
        let run = Ticket::new(completion.clone(), Account::default(), held).unwrap().start();
        run.end(Ok(()));
        completion.wait(None).unwrap();
        assert_eq!(freed.try_recv().unwrap().as_deref(), Some("kvmem-free"));
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
