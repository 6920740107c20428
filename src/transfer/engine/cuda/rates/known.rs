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
use super::{DEFAULT, Rates, Source};
use crate::cuda::device::UuidText;
use crate::cuda::{Device, driver};
use crate::error::{Error, Result, Status, ensure, fail};
use crate::guarded::guarded;
use crate::keyed::Keyed;
use crate::log::log;
use crate::sync::{Condvar, Mutex};
use crate::transfer::run::threads::Pool;

/// How long a transfer's creation waits for the first measurement, which takes 10 to 30 ms on a GPU without other work. A
/// kernel of the program may occupy the GPU for any time: then defaults are used until the measurement has ended.
const PATIENCE: Duration = Duration::from_millis(40);
/// How long a caller waits who requests the rates.
const QUERY_PATIENCE: Duration = Duration::from_secs(5);

/// The rates of a device, or of a pair of devices. The lock is never held while they are measured.
struct Known<R> {
    state: Mutex<State<R>>,
    /// A measurement has ended.
    ended: Condvar,
}

struct State<R> {
    entry: Option<Entry<R>>,
    /// When the measurement in progress has begun.
    measuring: Option<Instant>,
    /// Increased when the rates are set: the result of a measurement that began before is discarded.
    generation: u64,
}

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

impl<R> Default for Known<R> {
    fn default() -> Self {
        let state = State { entry: None, measuring: None, generation: 0 };
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }
}

impl<R: Clone + Send + 'static> Known<R> {
    /// The rates. If they are unknown, `measure` is called on a thread of its own, and this waits for it until `patience` has
    /// passed since it began; `None` if it takes longer. If the last measurement failed, it is repeated at a later use, for
    /// which this does not wait.
    fn get_or_measure(
        self: &Arc<Self>,
        patience: Duration,
        measure: impl FnOnce() -> (R, Result<()>) + Send + 'static,
    ) -> Option<R> {
        let mut state = self.state.lock();
        let next = match &mut state.entry {
            None => Some(Retry::FIRST),
            Some(entry) => entry.retry.as_mut().and_then(Retry::after_use),
        };
        if let (Some(next), None) = (next, state.measuring) {
            state.measuring = Some(Instant::now());
            let (known, generation) = (self.clone(), state.generation);
            let started = Pool::services().run_once_alone(move || {
                let measured = guarded(measure).inspect_err(|panic| log!(Error, "measure copies: {panic}"));
                known.publish(generation, measured.ok(), next);
            });
            if let Err(error) = started {
                log!(Warn, "measure copies: {error}");
                state.measuring = None;
            }
        }
        while let (None, Some(begun)) = (&state.entry, state.measuring) {
            let left = patience.checked_sub(begun.elapsed())?;
            state = self.ended.wait_timeout(state, left).0;
        }
        state.entry.as_ref().map(|entry| entry.rates.clone())
    }

    fn is_known(&self) -> bool {
        self.state.lock().entry.is_some()
    }

    fn publish(&self, generation: u64, measured: Option<(R, Result<()>)>, retry: Retry) {
        let mut state = self.state.lock();
        state.measuring = None;
        if let (Some((rates, outcome)), true) = (measured, state.generation == generation) {
            state.entry = Some(Entry { rates, retry: outcome.is_err().then_some(retry) });
        }
        drop(state);
        self.ended.notify_all();
    }

    /// The known rates. Waits until `patience` has passed for a measurement in progress.
    fn get(&self, patience: Duration) -> Option<R> {
        let mut state = self.state.lock();
        while let Some(begun) = state.measuring {
            let Some(left) = patience.checked_sub(begun.elapsed()) else { break };
            state = self.ended.wait_timeout(state, left).0;
        }
        state.entry.as_ref().map(|entry| entry.rates.clone())
    }

    /// Replaces the known rates; `None` discards them.
    fn set(&self, rates: Option<R>) {
        let mut state = self.state.lock();
        state.entry = rates.map(Entry::certain);
        state.generation += 1;
    }
}

static DEVICES: Keyed<i32, Known<Rates>> = Keyed::new();
/// Keys are the device that executes the copies, and its peer.
static PEERS: Keyed<(i32, i32), Known<PeerRates>> = Keyed::new();

/// Costs that runs of transfers have shown, by device.
static OBSERVED: Keyed<i32, Mutex<ObservedCosts>> = Keyed::new();

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
pub fn costs(device: &Arc<DeviceState>, peer: Option<i32>, direction: CopyDirection) -> Costs {
    let mut rates = between(device, peer, direction);
    if !matches!(direction, CopyDirection::ToDevice | CopyDirection::ToHost) {
        return Costs { rates, first_copy: 0.0, busy: 0.0, measured_batch: None, observed: None };
    }
    let observed = OBSERVED.of(device.context().device().ordinal());
    let (seen, now) = (*observed.lock(), Instant::now());
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

/// The rates of a device. Defaults replace rates that cannot be measured, or not yet.
fn of(device: &Arc<DeviceState>) -> Rates {
    measured(device, PATIENCE).unwrap_or(DEFAULT)
}

/// The rates of a device, measured if they are unknown; `None` if that takes longer than `patience`.
fn measured(device: &Arc<DeviceState>, patience: Duration) -> Option<Rates> {
    let ordinal = device.context().device().ordinal();
    let known = DEVICES.of(ordinal);
    let device = device.clone();
    if !known.is_known() && is_too_busy(&device) {
        return None;
    }
    known.get_or_measure(patience, move || {
        let started = Instant::now();
        let (times, outcome) = measure::measure(&device);
        log_failure(&format!("device {ordinal}"), &outcome);
        let rates = Rates::plausible(&times.rates());
        log_rates(ordinal, &rates, started.elapsed());
        (rates, outcome)
    })
}

/// Whether the kernels cannot be loaded now because the device is busy: then nothing is measured.
fn is_too_busy(device: &DeviceState) -> bool {
    device.kernel().is_err_and(|error| error.status() == Status::Busy)
}

/// The rates of a device, with those of its peer if it has one.
fn between(device: &Arc<DeviceState>, peer: Option<i32>, direction: CopyDirection) -> Rates {
    let own = of(device);
    let Some(peer) = peer else { return own };
    let unknown = || PeerRates::plausible(&PeerRates::default());
    measured_peer(device, peer, PATIENCE).unwrap_or_else(unknown).complete(own, direction)
}

fn measured_peer(device: &Arc<DeviceState>, peer: i32, patience: Duration) -> Option<PeerRates> {
    let ordinal = device.context().device().ordinal();
    let known = PEERS.of((ordinal, peer));
    let device = device.clone();
    if !known.is_known() && is_too_busy(&device) {
        return None;
    }
    known.get_or_measure(patience, move || {
        let started = Instant::now();
        let (times, outcome) = measure::measure_peer(&device, peer);
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

/// Returns the rates of a device. Measures them if they are unknown. Fails with BUSY if that takes too long.
pub fn get(ordinal: i32) -> Result<Rates> {
    Device::get(ordinal)?;
    match DEVICES.of(ordinal).get(QUERY_PATIENCE) {
        Some(rates) => Ok(rates),
        None => measured(&DeviceState::of(ordinal)?, QUERY_PATIENCE).ok_or_else(|| not_measured(ordinal)),
    }
}

/// Returns the rates between a device, which executes the copies, and a peer. Measures them if they are unknown.
pub fn get_peer(ordinal: i32, peer: i32) -> Result<PeerRates> {
    ensure_two(ordinal, peer)?;
    match PEERS.of((ordinal, peer)).get(QUERY_PATIENCE) {
        Some(rates) => Ok(rates),
        None => measured_peer(&DeviceState::of(ordinal)?, peer, QUERY_PATIENCE)
            .ok_or_else(|| not_measured(ordinal)),
    }
}

fn not_measured(ordinal: i32) -> Error {
    Error::formatted(
        Status::Busy,
        format_args!(
            "the copy rates of device {ordinal} are not measured yet, because other work occupies it; query them again later, \
             or set rates by kvmem_cuda_set_copy_rates or kvmem_cuda_use_default_rates"
        ),
    )
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
    DEVICES.of(ordinal).set(given.map(Rates::loaded));
    *OBSERVED.of(ordinal).lock() = ObservedCosts::default();
    Ok(())
}

fn set_peer(ordinal: i32, peer: i32, given: Option<PeerRates>) -> Result<()> {
    PEERS.of((ordinal, peer)).set(given.map(PeerRates::loaded));
    Ok(())
}

fn ensure_device(device: Device, ordinal: i32, expected: &Uuid) -> Result<()> {
    let found = device.uuid()?;
    ensure!(
        found == *expected,
        InvalidArgument,
        "the rates are of the GPU with {}, device {ordinal} has {}: measure them again, or set rates that were saved on this GPU",
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Longer than any thread takes to start.
    const LONG: Duration = Duration::from_secs(20);

    /// The uses, from 1, at which the rates are measured, if the first `failures` measurements fail.
    fn attempts(failures: usize, uses: u32) -> Vec<u32> {
        let known = Arc::new(Known::default());
        let attempts = Arc::new(Mutex::new(Vec::new()));
        for number in 1..=uses {
            let attempts = attempts.clone();
            known.get_or_measure(LONG, move || {
                let mut attempts = attempts.lock();
                attempts.push(number);
                let failed = attempts.len() <= failures;
                let failure = || Error::new(Status::OutOfMemory, "no memory for buffers");
                ((), if failed { Err(failure()) } else { Ok(()) })
            });
            // A repetition that this use has begun.
            known.get(LONG);
        }
        attempts.lock().clone()
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
        let known = Arc::new(Known::default());
        known.set(Some(5));
        assert_eq!((0..100).map(|_| known.get_or_measure(LONG, || (7, Ok(())))).max(), Some(Some(5)));
        known.set(None);
        assert_eq!((known.get(LONG), known.get_or_measure(LONG, || (7, Ok(())))), (None, Some(7)));
    }

    /// A measurement that a busy device holds up delays nobody beyond the patience, and neither queries nor settings at all.
    #[test]
    fn a_measurement_in_progress_holds_nobody_up() {
        let known = Arc::new(Known::default());
        let (go, held) = channel::<()>();
        let endless = move || {
            let _ = held.recv();
            (7, Ok(()))
        };
        assert_eq!(known.get_or_measure(Duration::from_millis(1), endless), None);
        assert_eq!(known.get_or_measure(Duration::from_millis(1), || panic!("one is in progress")), None);
        assert_eq!(known.get(Duration::ZERO), None);
        drop(go);
        assert_eq!(known.get(LONG), Some(7));
    }

    #[test]
    fn a_measurement_does_not_replace_rates_that_were_set_meanwhile() {
        let known = Arc::new(Known::default());
        let (go, held) = channel::<()>();
        let measure = move || {
            let _ = held.recv();
            (7, Ok(()))
        };
        assert_eq!(known.get_or_measure(Duration::from_millis(1), measure), None);
        known.set(Some(5));
        drop(go);
        assert_eq!((known.get(LONG), known.get(LONG)), (Some(5), Some(5)));
    }

    #[test]
    fn a_measurement_that_panics_is_repeated() {
        let known = Arc::new(Known::default());
        assert_eq!(known.get_or_measure(LONG, || panic!("deliberate")), None);
        assert_eq!(known.get_or_measure(LONG, || (7, Ok(()))), Some(7));
    }
}
