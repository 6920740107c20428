// SPDX-License-Identifier: Apache-2.0
//! How fast this machine copies host memory: measured once per process, when somebody asks what to expect.

#![forbid(unsafe_code)]

use std::time::Instant;

use crate::process::PerProcess;
use crate::transfer::run::threads::Pool;

/// What a thread copies. All together is more than a core's caches hold.
const BYTES: usize = 4 << 20;
const ROUNDS: usize = 3;

/// Bytes a second of one thread, and of all that are worth having.
#[derive(Clone, Copy, Debug)]
struct Measured {
    one: f64,
    all: f64,
}

/// Bytes a second that so many threads copy together.
pub fn of(threads: usize) -> f64 {
    static RATES: PerProcess<Measured> = PerProcess::new();
    let Measured { one, all } = *RATES.get(measure);
    between(one, all, threads)
}

/// Threads add up until memory is the limit.
fn between(one: f64, all: f64, threads: usize) -> f64 {
    (one * threads.max(1) as f64).min(one.max(all))
}

fn measure() -> Measured {
    Measured { one: rate(1), all: rate(Pool::parallelism()) }
}

/// The best of a few rounds, of whole threads: they begin and end within the time.
fn rate(threads: usize) -> f64 {
    let mut buffers = vec![(vec![1u8; BYTES], vec![2u8; BYTES]); threads];
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        best = best.min(copy_all(&mut buffers));
    }
    (threads * BYTES) as f64 / best.max(1e-9)
}

/// Seconds of the slowest thread.
fn copy_all(buffers: &mut [(Vec<u8>, Vec<u8>)]) -> f64 {
    let copy = |(from, to): &mut (Vec<u8>, Vec<u8>)| {
        let started = Instant::now();
        to.copy_from_slice(from);
        started.elapsed().as_secs_f64()
    };
    let Some((own, others)) = buffers.split_first_mut() else { return f64::INFINITY };
    std::thread::scope(|scope| {
        let spawn = |pair| std::thread::Builder::new().spawn_scoped(scope, move || copy(pair)).ok();
        let started: Vec<_> = others.iter_mut().filter_map(spawn).collect();
        let slowest = copy(own);
        started.into_iter().filter_map(|thread| thread.join().ok()).fold(slowest, f64::max)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_to_what_memory_gives() {
        assert_eq!(between(4.0, 10.0, 1), 4.0);
        assert_eq!(between(4.0, 10.0, 2), 8.0);
        assert_eq!(between(4.0, 10.0, 16), 10.0);
        assert_eq!(between(4.0, 3.0, 2), 4.0, "more threads are not slower");
    }

    #[test]
    fn a_machine_copies_something() {
        assert!(of(1) > 0.0 && of(1).is_finite());
    }
}
