// SPDX-License-Identifier: Apache-2.0
//! The copy rates of the devices of this process, and of pairs of them: measured at first use, unless the caller has
//! set them.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::device::state::DeviceState;
use super::super::direction::CopyDirection;
use super::measure;
use super::observed::{BatchDirection, BatchFactors, ObservedCosts};
use super::peer::PeerRates;
use super::saved::{Saved, Uuid};
use super::{Rates, Source};
use crate::cuda::device::UuidText;
use crate::cuda::{Device, driver};
use crate::error::{Result, ensure, fail};
use crate::log::log;
use crate::sync::{Mutex, MutexGuard};

/// The store's entry for a key, once it exists. The thread that measures holds the lock, and other threads wait for it.
type Known<R> = Arc<Mutex<Option<Entry<R>>>>;

/// Rates by device, or by pair of devices.
struct Store<K, R>(Mutex<Vec<(K, Known<R>)>>);

/// Rates, and when to measure them again if the last measurement failed.
struct Entry<R> {
    rates: R,
    retry: Option<Retry>,
}

/// When a failed measurement is repeated: after 16 uses of its defaults, then after 32, and so on. The cause may be over, such as
/// a lack of memory, or last, such as a missing kernel: then each attempt costs as much as the first.
#[derive(Clone, Copy)]
struct Retry {
    interval: u32,
    used: u32,
}

impl Retry {
    const FIRST: Self = Self { interval: 16, used: 0 };

    /// Counts a use. If it is time to measure, returns when to do so again if that fails too.
    fn after_use(&mut self) -> Option<Self> {
        self.used += 1;
        let interval = self.interval.saturating_mul(2);
        (self.used > self.interval).then_some(Self { interval, used: 0 })
    }
}

impl<R> Entry<R> {
    fn certain(rates: R) -> Self {
        Self { rates, retry: None }
    }
}

static DEVICES: Store<i32, Rates> = Store(Mutex::new(Vec::new()));
/// Keys are the device that executes the copies, and its peer.
static PEERS: Store<(i32, i32), PeerRates> = Store(Mutex::new(Vec::new()));

impl<K: Copy + PartialEq, R: Clone> Store<K, R> {
    fn known(&self, key: K) -> Known<R> {
        let mut all = lock(&self.0);
        if let Some((_, known)) = all.iter().find(|(of, _)| *of == key) {
            return known.clone();
        }
        let known = Known::default();
        all.push((key, known.clone()));
        known
    }

    /// Returns the known rates, or measures them. If `measure` returns a failure too, it is called again at a later use.
    fn get_or_measure(&self, key: K, measure: impl FnOnce() -> (R, Result<()>)) -> R {
        let known = self.known(key);
        let mut known = lock(&known);
        let retry = match &mut *known {
            None => Retry::FIRST,
            Some(entry) => match entry.retry.as_mut().and_then(Retry::after_use) {
                Some(next) => next,
                None => return entry.rates.clone(),
            },
        };
        let (rates, outcome) = measure();
        *known = Some(Entry { rates: rates.clone(), retry: outcome.is_err().then_some(retry) });
        rates
    }

    /// The known rates.
    fn get(&self, key: K) -> Option<R> {
        lock(&self.known(key)).as_ref().map(|entry| entry.rates.clone())
    }

    /// Replaces the known rates; `None` discards them.
    fn set(&self, key: K, rates: Option<R>) {
        *lock(&self.known(key)) = rates.map(Entry::certain);
    }
}

/// Costs that runs of transfers have shown, by device.
static OBSERVED: Store<i32, Arc<Mutex<ObservedCosts>>> = Store(Mutex::new(Vec::new()));

/// The inputs of the cost model for one transfer.
pub struct Costs {
    /// The rates. If they were measured, later batches have corrected them.
    pub rates: Rates,
    /// Additional seconds of each of a batch's first copies, in the transfer's direction.
    pub first_copy: f64,
    /// How busy compute keeps the device, from 0 to 1.
    pub busy: f64,
    /// Measured seconds per copy of a batch. `None` if the caller has set the rates, which are not corrected.
    pub measured_batch: Option<f64>,
    /// Where runs between host and device record their costs. Other runs depend on none of them.
    pub observed: Option<Arc<Mutex<ObservedCosts>>>,
}

/// The costs of a transfer on a device, in one direction, with its peer if it has one.
pub fn costs(device: &DeviceState, peer: Option<i32>, direction: CopyDirection) -> Costs {
    let mut rates = between(device, peer, direction);
    if !matches!(direction, CopyDirection::ToDevice | CopyDirection::ToHost) {
        return Costs { rates, first_copy: 0.0, busy: 0.0, measured_batch: None, observed: None };
    }
    let observed = observed(device.context().device().ordinal());
    let (seen, now) = (*lock(&observed), Instant::now());
    let measured_batch = (rates.source != Source::Loaded).then_some(rates.of(direction).batched);
    let mut first_copy = 0.0;
    if measured_batch.is_some() {
        for (own, of, batches) in [
            (&mut rates.to_device, CopyDirection::ToDevice, BatchDirection::ToDevice),
            (&mut rates.to_host, CopyDirection::ToHost, BatchDirection::ToHost),
        ] {
            let BatchFactors { first, later } = seen.batch_factors(batches, now);
            if of == direction {
                first_copy = own.batched * (first - later);
            }
            own.batched *= later;
        }
    }
    Costs { rates, first_copy, busy: seen.busy(now), measured_batch, observed: Some(observed) }
}

fn observed(ordinal: i32) -> Arc<Mutex<ObservedCosts>> {
    OBSERVED.get_or_measure(ordinal, || (Arc::default(), Ok(())))
}

/// The rates of a device. Defaults replace rates that cannot be measured.
pub fn of(device: &DeviceState) -> Rates {
    let ordinal = device.context().device().ordinal();
    DEVICES.get_or_measure(ordinal, || {
        let started = Instant::now();
        let (times, outcome) = measure::measure(device);
        log_failure(&format!("device {ordinal}"), &outcome);
        let rates = Rates::plausible(&times.rates());
        log_rates(ordinal, &rates, started.elapsed());
        (rates, outcome)
    })
}

/// The rates of a device, with those of its peer if it has one.
fn between(device: &DeviceState, peer: Option<i32>, direction: CopyDirection) -> Rates {
    let own = of(device);
    peer.map_or(own, |peer| of_peer(device, peer).complete(own, direction))
}

fn of_peer(device: &DeviceState, peer: i32) -> PeerRates {
    let ordinal = device.context().device().ordinal();
    PEERS.get_or_measure((ordinal, peer), || {
        let started = Instant::now();
        let (times, outcome) = measure::measure_peer(device, peer);
        log_failure(&format!("device {ordinal} and its peer {peer}"), &outcome);
        let rates = PeerRates::plausible(&times.peer_rates());
        log_peer_rates(ordinal, peer, &rates, started.elapsed());
        (rates, outcome)
    })
}

fn log_failure(devices: &str, outcome: &Result<()>) {
    if let Err(error) = outcome {
        log!(
            Warn,
            "measure copies of {devices}: {error}; defaults replace the missing rates until a later transfer measures them again"
        );
    }
}

fn log_rates(ordinal: i32, rates: &Rates, duration: Duration) {
    let milliseconds = milliseconds(duration);
    let Rates { num_defaults, to_device, to_host, on_device, .. } = rates;
    if *num_defaults > 0 {
        log!(
            Warn,
            "device {ordinal}: {num_defaults} measured rates are implausible and were replaced by defaults"
        );
    }
    log!(
        Info,
        "device {ordinal}: copies measured in {milliseconds:.1} ms: {:.1} GB/s to it, {:.1} to the host, {:.0} within",
        to_device.link / 1e9,
        to_host.link / 1e9,
        on_device.link / 1e9
    );
}

/// Logs defaults without a warning: without peer access there is no kernel to measure.
fn log_peer_rates(ordinal: i32, peer: i32, rates: &PeerRates, duration: Duration) {
    let milliseconds = milliseconds(duration);
    log!(
        Info,
        "device {ordinal}: copies measured in {milliseconds:.1} ms: {:.1} GB/s from device {peer}, {:.1} to it; {} rates \
         are defaults",
        rates.read.link / 1e9,
        rates.write.link / 1e9,
        rates.num_defaults
    );
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Returns the rates of a device. Measures them if they are unknown.
pub fn get(ordinal: i32) -> Result<Rates> {
    Device::get(ordinal)?;
    match DEVICES.get(ordinal) {
        Some(rates) => Ok(rates),
        None => Ok(of(&*DeviceState::of(ordinal)?)),
    }
}

/// Returns the rates between a device, which executes the copies, and a peer. Measures them if they are unknown.
pub fn get_peer(ordinal: i32, peer: i32) -> Result<PeerRates> {
    ensure_two(ordinal, peer)?;
    match PEERS.get((ordinal, peer)) {
        Some(rates) => Ok(rates),
        None => Ok(of_peer(&*DeviceState::of(ordinal)?, peer)),
    }
}

/// Serializes the rates of a device, for a later process.
pub fn save(ordinal: i32) -> Result<Vec<u8>> {
    let rates = get(ordinal)?;
    Saved::Device(Device::get(ordinal)?.uuid()?, rates).write()
}

/// Serializes the rates between a device and a peer.
pub fn save_peer(ordinal: i32, peer: i32) -> Result<Vec<u8>> {
    let rates = get_peer(ordinal, peer)?;
    Saved::Pair(Device::get(ordinal)?.uuid()?, Device::get(peer)?.uuid()?, rates).write()
}

/// Uses saved rates of a device. `None` discards the known rates: they are measured when they are next needed.
pub fn load(ordinal: i32, saved: Option<&[u8]>) -> Result<()> {
    let device = Device::get(ordinal)?;
    let Some(bytes) = saved else { return set(ordinal, None) };
    match Saved::read(bytes)? {
        Saved::Device(uuid, rates) => {
            ensure_device(device, ordinal, &uuid)?;
            set(ordinal, Some(rates))
        }
        Saved::Pair(..) => {
            fail!(
                InvalidArgument,
                "the blob has the rates between two GPUs; pass it to kvmem_cuda_set_peer_rates"
            )
        }
    }
}

/// Uses saved rates between a device and a peer.
pub fn load_peer(ordinal: i32, peer: i32, saved: Option<&[u8]>) -> Result<()> {
    ensure_two(ordinal, peer)?;
    let Some(bytes) = saved else { return set_peer(ordinal, peer, None) };
    match Saved::read(bytes)? {
        Saved::Pair(uuid, peer_uuid, rates) => {
            ensure_device(Device::get(ordinal)?, ordinal, &uuid)?;
            ensure_device(Device::get(peer)?, peer, &peer_uuid)?;
            set_peer(ordinal, peer, Some(rates))
        }
        Saved::Device(..) => {
            fail!(InvalidArgument, "the blob has the rates of one GPU; pass it to kvmem_cuda_set_copy_rates")
        }
    }
}

/// Uses the built-in rates for a device, and for copies between it and each peer, whichever of the two executes them.
pub fn use_defaults(ordinal: i32) -> Result<()> {
    set(ordinal, Some(Rates::default()))?;
    for peer in (0..driver::get()?.device_count()).filter(|peer| *peer != ordinal) {
        set_peer(ordinal, peer, Some(PeerRates::default()))?;
        set_peer(peer, ordinal, Some(PeerRates::default()))?;
    }
    Ok(())
}

fn set(ordinal: i32, given: Option<Rates>) -> Result<()> {
    Device::get(ordinal)?;
    DEVICES.set(ordinal, given.map(Rates::loaded));
    *lock(&observed(ordinal)) = ObservedCosts::default();
    Ok(())
}

fn set_peer(ordinal: i32, peer: i32, given: Option<PeerRates>) -> Result<()> {
    PEERS.set((ordinal, peer), given.map(PeerRates::loaded));
    Ok(())
}

fn ensure_device(device: Device, ordinal: i32, expected: &Uuid) -> Result<()> {
    let found = device.uuid()?;
    ensure!(
        found == *expected,
        InvalidArgument,
        "the rates are of {}, device {ordinal} is {}: measure them again, or set rates that were saved on this GPU",
        UuidText(expected),
        UuidText(&found)
    );
    Ok(())
}

fn ensure_two(ordinal: i32, peer: i32) -> Result<()> {
    Device::get(ordinal)?;
    Device::get(peer)?;
    ensure!(
        ordinal != peer,
        InvalidArgument,
        "device {ordinal} is not a peer of itself; query and load its own rates without a peer"
    );
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Status};

    /// The uses, from 1, at which the rates are measured, if the first `failures` measurements fail.
    fn attempts(failures: usize, uses: u32) -> Vec<u32> {
        let store = Store(Mutex::new(Vec::new()));
        let mut attempts = Vec::new();
        for number in 1..=uses {
            store.get_or_measure(0, || {
                attempts.push(number);
                let failed = attempts.len() <= failures;
                let failure = || Error::new(Status::OutOfMemory, "no memory for buffers");
                ((), if failed { Err(failure()) } else { Ok(()) })
            });
        }
        attempts
    }

    #[test]
    fn a_measurement_that_succeeds_is_not_repeated() {
        assert_eq!(attempts(0, 1000), [1]);
    }

    #[test]
    fn a_failed_measurement_is_repeated_until_it_succeeds() {
        assert_eq!(attempts(1, 1000), [1, 18]);
        assert_eq!(attempts(2, 1000), [1, 18, 51]);
    }

    #[test]
    fn a_measurement_that_always_fails_is_repeated_ever_more_rarely() {
        assert_eq!(attempts(usize::MAX, 1000), [1, 18, 51, 116, 245, 502]);
    }

    #[test]
    fn rates_that_are_set_are_not_measured() {
        let store = Store(Mutex::new(Vec::new()));
        store.set(0, Some(5));
        assert_eq!((0..100).map(|_| store.get_or_measure(0, || (7, Ok(())))).max(), Some(5));
        store.set(0, None);
        assert_eq!((store.get(0), store.get_or_measure(0, || (7, Ok(())))), (None, 7));
    }
}
