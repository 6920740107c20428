// SPDX-License-Identifier: Apache-2.0
//! The blocks of a region that an allocator of tensors has. They are allocated and freed in the order of streams: a block that was
//! freed is reused after the work that was on its stream then.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ranges::{Ranges, Taken};
use crate::base::{Mutex, Result, ensure, log};
use crate::cuda::{Active, CallerStream, Context, Device, Event, Stream, Wake};

/// How often a thread looks for the end of work that the driver should report.
const LOOK: Duration = Duration::from_millis(20);

/// What was submitted to a stream before a block was freed.
#[derive(Clone)]
pub enum Work {
    Before(Arc<Event>),
    /// The stream was being captured, or the driver has recorded no event: the memory is not reused until the caller has waited for
    /// the device.
    Unknown,
}

pub struct Blocks {
    pub context: Arc<Context>,
    ranges: Mutex<Ranges<Work>>,
    /// Locked while memory of the region is committed or decommitted: an extent that was found free is not given memory for a
    /// block between that and its decommit. No getter takes it.
    pub resizing: Mutex<()>,
}

impl Blocks {
    /// Of a region of this size, which is located on a device.
    pub fn new(ordinal: i32, size: u64) -> Result<Self> {
        let context = Arc::new(Context::retain(Device::get(ordinal)?)?);
        Ok(Self { context, ranges: Mutex::new(Ranges::new(size)), resizing: Mutex::default() })
    }

    /// Forgets work that has ended. The driver is asked, and destroys its events, without the lock.
    fn forget_ended(&self) {
        let mut ended = self.work();
        ended.sort_unstable_by_key(Arc::as_ptr);
        ended.dedup_by_key(|event| Arc::as_ptr(event));
        ended.retain(|event| event.is_done().unwrap_or(false));
        let find = |event: &Arc<Event>| ended.binary_search_by_key(&Arc::as_ptr(event), Arc::as_ptr);
        self.ranges.lock().end_work(|work| matches!(work, Work::Before(event) if find(event).is_ok()));
    }

    /// What free memory waits for, as far as it is known.
    fn work(&self) -> Vec<Arc<Event>> {
        let ranges = self.ranges.lock();
        let events = ranges.working().filter_map(|(_, _, work)| match work {
            Work::Before(event) => Some(event.clone()),
            Work::Unknown => None,
        });
        events.collect()
    }

    pub fn is_unused(&self) -> bool {
        self.ranges.lock().used().next().is_none()
    }

    /// Takes free memory, and makes the stream wait for the work that uses it. `None`: no range is large enough.
    pub fn take(&self, size: u64, stream: &Active<'_>) -> Result<Option<Taken<Work>>> {
        // A graph cannot wait for work outside of it.
        let is_captured = stream.is_captured();
        let may_wait = |work: &Work| !is_captured && matches!(work, Work::Before(_));
        self.forget_ended();
        let taken = self.ranges.lock().take(size, may_wait);
        if let Some(Taken { offset, work: Some(Work::Before(event)), .. }) = &taken
            && let Err(error) = stream.wait_for(event)
        {
            self.give(*offset, Some(Work::Before(event.clone())))?;
            return Err(error);
        }
        Ok(taken)
    }

    /// Returns memory, with the work that uses it.
    pub fn give(&self, offset: u64, work: Option<Work>) -> Result<()> {
        ensure!(
            self.ranges.lock().give(offset, work),
            InvalidArgument,
            "no block of the pool starts at offset {offset}, or it was freed before"
        );
        Ok(())
    }

    /// Frees a block: other blocks may have its memory after the work that is on the stream now.
    pub fn free(&self, offset: u64, stream: CallerStream) -> Result<()> {
        let recorded = self.record(stream);
        let work = recorded.as_ref().map_or(Work::Unknown, |event| Work::Before(event.clone()));
        self.give(offset, Some(work))?;
        recorded.map(drop)
    }

    fn record(&self, stream: CallerStream) -> Result<Arc<Event>> {
        let stream = stream.activate(&self.context)?;
        ensure!(
            !stream.is_captured(),
            InvalidState,
            "the stream is being captured, so the memory is not reused before kvmem_pool_commit with KVMEM_POOL_NOTHING"
        );
        let event = Event::new(&self.context)?;
        stream.record(&event)?;
        Ok(Arc::new(event))
    }

    /// Waits until no work uses free memory, or for a limited time.
    pub fn await_free(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let mut reported = Vec::new();
        let mut wake = Arc::default();
        while Instant::now() < end {
            self.forget_ended();
            let working = self.work();
            if working.is_empty() {
                return;
            }
            let is_reported = |event| reported.iter().any(|known| Arc::ptr_eq(known, event));
            if !working.iter().all(is_reported) {
                wake = Arc::default();
                if let Err(error) = self.wake_after(&working, &wake) {
                    log!(Debug, "wait for work that uses free memory of a pool: {error}");
                }
                reported = working;
            }
            wake.wait(end.min(Instant::now() + LOOK));
        }
    }

    /// Has the driver report the end of all of it.
    fn wake_after(&self, events: &[Arc<Event>], wake: &Arc<Wake>) -> Result<()> {
        let stream = Stream::new(&self.context)?;
        let on = stream.activate()?;
        events.iter().try_for_each(|event| on.wait_for(event))?;
        on.wake(wake)
    }

    /// All work has ended.
    pub fn end_work(&self) {
        let _destroyed_later = self.work();
        self.ranges.lock().end_work(|_| true);
    }

    /// The extents of blocks, and those of free memory that work still uses. `touched` returns the extents of a range.
    pub fn extents(&self, touched: impl Fn(u64, u64) -> Range<usize>) -> (BTreeSet<usize>, BTreeSet<usize>) {
        self.forget_ended();
        let ranges = self.ranges.lock();
        let used = ranges.used().flat_map(|(offset, size)| touched(offset, size)).collect();
        let working = ranges.working().flat_map(|(offset, size, _)| touched(offset, size)).collect();
        (used, working)
    }
}
