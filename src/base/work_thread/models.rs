// SPDX-License-Identifier: Apache-2.0
//! Threads that add work and promise some, while the thread that serves it may end, in every order.

use super::*;
use crate::base::Mutex;
use crate::base::modelled::{explore, spawn};

/// The thread, what waits for it, and the sum of what it has served.
type Shared = Arc<Mutex<(WorkThread, u32, u32)>>;

fn serve(shared: &Shared) -> bool {
    let (thread, waiting, served) = &mut *shared.lock();
    let new = std::mem::take(waiting);
    *served += new;
    thread.goes_on(new > 0)
}

fn start(shared: &Shared) -> Result<loom::thread::JoinHandle<()>> {
    let shared = shared.clone();
    let serve = move || {
        while serve(&shared) {
            loom::thread::yield_now()
        }
    };
    Ok(spawn(serve))
}

#[test]
fn all_work_is_served_and_then_the_thread_ends() {
    explore("work_thread", 3, || {
        let shared = Shared::default();
        let adder = spawn({
            let shared = shared.clone();
            move || {
                let mut state = shared.lock();
                state.1 += 1;
                state.0.ensure(|| start(&shared)).unwrap()
            }
        });
        let mut state = shared.lock();
        let started = state.0.ensure(|| start(&shared)).unwrap();
        let promise = state.0.promise(&shared);
        drop(state);
        promise.to.lock().1 += 2;
        drop(promise);
        let threads = [started, adder.join().unwrap()];
        threads.into_iter().flatten().for_each(|thread| thread.join().unwrap());
        let (thread, waiting, served) = &*shared.lock();
        assert_eq!((thread.is_running(), *waiting, *served), (false, 0, 3));
    });
}
