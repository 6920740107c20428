// SPDX-License-Identifier: Apache-2.0
//! Device memory that its owner has freed while other processes have it open by its IPC handle.
//!
//! CUDA forbids freeing the memory before the importers close it, so it is kept until then. It is checked whenever a region
//! is shared, freed or queried, and before device memory is allocated.

use std::sync::{Arc, Weak};

use super::{Backing, Control};
use crate::base::{Mutex, MutexGuard, PerProcess, thread};
use crate::cuda::exit::Unattended;

/// The memory, and the control block that shows whether importers are left.
type Waiting = Vec<(Arc<dyn Backing>, Arc<Control>)>;

/// Per process, because a forked child must not free the memory.
fn waiting() -> MutexGuard<'static, Waiting> {
    static WAITING: PerProcess<Mutex<Waiting>> = PerProcess::new();
    WAITING.get(Mutex::default).lock()
}

/// Frees device memory once no importer has it open.
pub(super) fn free_later(memory: &Arc<dyn Backing>, control: &Arc<Control>) {
    waiting().push((memory.clone(), control.clone()));
}

/// Frees the memory that no importer has open any more. Waits for the device.
pub fn sweep() {
    drop(take_free());
}

/// The same on a thread of its own: getters must not wait for the device. If none can be started, the memory waits for the next
/// check.
pub(super) fn sweep_aside() {
    let free = take_free();
    if free.is_empty() {
        return;
    }
    let Ok(work) = Unattended::begin() else { return waiting().extend(free) };
    let (sender, receiver) = std::sync::mpsc::channel::<Waiting>();
    let free_all = move || drop((receiver.recv(), work));
    match thread::spawn("kvmem-free", free_all) {
        Ok(_) => drop(sender.send(free)),
        Err(_) => waiting().extend(free),
    }
}

/// Takes the memory that no importer has open any more from the list.
fn take_free() -> Waiting {
    // An importer can slow the kernel's reply down by many locks. So the kernel is queried without the lock, which every
    // thread that shares, frees or allocates device memory needs.
    // Without holding the memory: another thread may remove it from the list meanwhile, and this one must not be the last holder.
    let candidates: Vec<_> =
        waiting().iter().map(|(memory, control)| (Arc::downgrade(memory), control.clone())).collect();
    let is_free = |(_, control): &&(Weak<dyn Backing>, Arc<Control>)| !control.may_have_importers();
    let over: Vec<_> = candidates.iter().filter(is_free).map(|(memory, _)| memory.as_ptr().addr()).collect();
    let is_over = |waits: &mut (Arc<dyn Backing>, _)| over.contains(&Arc::as_ptr(&waits.0).addr());
    // Freed without the lock, which every thread that shares, frees or allocates device memory needs: freeing waits for
    // the device.
    waiting().extract_if(.., is_over).collect()
}
