// SPDX-License-Identifier: Apache-2.0
//! What copies cost on the devices of this process, and between two of them: measured when it is first asked for,
//! unless the caller has said it.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::device::state::DeviceState;
use super::super::direction::Direction;
use super::measure;
use super::observed::{BatchDirection, ObservedCosts};
use super::peer::PeerRates;
use super::saved::{Saved, Uuid};
use super::{Rates, Source};
use crate::cuda::device::UuidText;
use crate::cuda::{Device, driver};
use crate::error::{Result, ensure, fail};
use crate::log::log;
use crate::sync::{Mutex, MutexGuard};

/// What is known of something. Whoever measures holds it, and others wait for that.
type Known<R> = Arc<Mutex<Option<R>>>;

/// What is known, by what it is about.
struct Store<K, R>(Mutex<Vec<(K, Known<R>)>>);

static DEVICES: Store<i32, Rates> = Store(Mutex::new(Vec::new()));
/// By the device that does the work, and the other one.
static PEERS: Store<(i32, i32), PeerRates> = Store(Mutex::new(Vec::new()));

impl<K: Copy + PartialEq, R: Clone> Store<K, R> {
    fn known(&self, about: K) -> Known<R> {
        let mut all = lock(&self.0);
        if let Some((_, known)) = all.iter().find(|(of, _)| *of == about) {
            return known.clone();
        }
        let known = Known::default();
        all.push((about, known.clone()));
        known
    }

    /// Returns what is known, or else measures it.
    fn get_or(&self, about: K, measure: impl FnOnce() -> R) -> R {
        lock(&self.known(about)).get_or_insert_with(measure).clone()
    }
}

/// What transfers have shown of the devices.
static OBSERVED: Store<i32, Arc<Mutex<ObservedCosts>>> = Store(Mutex::new(Vec::new()));

/// What a transfer is weighed by.
pub struct Costs {
    /// What was measured or given; with what batches have shown since, where it was measured.
    pub rates: Rates,
    /// How busy compute keeps the device.
    pub busy: f64,
    /// Seconds of a copy of a batch, as measured; none where the caller has given the rates, which stay as given.
    pub measured_batch: Option<f64>,
    /// Takes what transfers show.
    pub observed: Arc<Mutex<ObservedCosts>>,
}

/// What a transfer of an engine is weighed by, with the other device, if any, that it goes from or to.
pub fn costs(engine: &DeviceState, peer: Option<i32>, direction: Direction) -> Costs {
    let mut rates = between(engine, peer, direction);
    let observed = observed(engine.context().device().ordinal());
    let (seen, now) = (*lock(&observed), Instant::now());
    let measured_batch = (rates.source != Source::Loaded).then_some(rates.of(direction).batched);
    if measured_batch.is_some() {
        rates.to_device.batched *= seen.batch_factor(BatchDirection::ToDevice, now);
        rates.to_host.batched *= seen.batch_factor(BatchDirection::ToHost, now);
    }
    Costs { rates, busy: seen.busy(now), measured_batch, observed }
}

fn observed(ordinal: i32) -> Arc<Mutex<ObservedCosts>> {
    OBSERVED.get_or(ordinal, Arc::default)
}

/// What copies of an engine cost; never fails.
pub fn of(engine: &DeviceState) -> Rates {
    let ordinal = engine.context().device().ordinal();
    DEVICES.get_or(ordinal, || {
        let started = Instant::now();
        let (times, outcome) = measure::measure(engine);
        log_failure(&format!("device {ordinal}"), outcome);
        let rates = Rates::plausible(&times.rates());
        log_rates(ordinal, &rates, started.elapsed());
        rates
    })
}

/// The same of an engine and the other device, if any, that a transfer goes from or to.
fn between(engine: &DeviceState, peer: Option<i32>, direction: Direction) -> Rates {
    let own = of(engine);
    peer.map_or(own, |peer| of_peer(engine, peer).complete(own, direction))
}

fn of_peer(engine: &DeviceState, peer: i32) -> PeerRates {
    let ordinal = engine.context().device().ordinal();
    PEERS.get_or((ordinal, peer), || {
        let started = Instant::now();
        let (times, outcome) = measure::measure_peer(engine, peer);
        log_failure(&format!("device {ordinal} and its peer {peer}"), outcome);
        let rates = PeerRates::plausible(&times.peer_rates());
        log_peer_rates(ordinal, peer, &rates, started.elapsed());
        rates
    })
}

fn log_failure(whose: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        log!(Warn, "measure copies of {whose}: {error}; defaults replace the missing rates");
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

/// Without peer access there is no kernel to measure, which is worth no warning.
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

/// What copies of a device cost.
pub fn get(ordinal: i32) -> Result<Rates> {
    Device::get(ordinal)?;
    let answer = *lock(&DEVICES.known(ordinal));
    match answer {
        Some(rates) => Ok(rates),
        None => Ok(of(&*DeviceState::of(ordinal)?)),
    }
}

/// What copies between a device, which does the work, and a peer cost.
pub fn get_peer(ordinal: i32, peer: i32) -> Result<PeerRates> {
    ensure_two(ordinal, peer)?;
    let answer = *lock(&PEERS.known((ordinal, peer)));
    match answer {
        Some(rates) => Ok(rates),
        None => Ok(of_peer(&*DeviceState::of(ordinal)?, peer)),
    }
}

/// Serializes what copies of a device cost, for a later process.
pub fn save(ordinal: i32) -> Result<Vec<u8>> {
    let rates = get(ordinal)?;
    Saved::Device(Device::get(ordinal)?.uuid()?, rates).write()
}

/// The same of a device and a peer.
pub fn save_peer(ordinal: i32, peer: i32) -> Result<Vec<u8>> {
    let rates = get_peer(ordinal, peer)?;
    Saved::Pair(Device::get(ordinal)?.uuid()?, Device::get(peer)?.uuid()?, rates).write()
}

/// Uses saved rates of a device. Without any they are measured when they are needed next.
pub fn load(ordinal: i32, saved: Option<&[u8]>) -> Result<()> {
    let device = Device::get(ordinal)?;
    let Some(bytes) = saved else { return set(ordinal, None) };
    match Saved::read(bytes)? {
        Saved::Device(uuid, rates) => {
            ensure_device(device, ordinal, &uuid)?;
            set(ordinal, Some(rates))
        }
        Saved::Pair(..) => {
            fail!(InvalidArgument, "these are rates of two GPUs; kvmem_cuda_set_peer_rates takes them")
        }
    }
}

/// The same of a device and a peer.
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
            fail!(InvalidArgument, "these are rates of one GPU; kvmem_cuda_set_copy_rates takes them")
        }
    }
}

/// Uses the rates that the library brings for a device, and for it and each other one.
pub fn use_defaults(ordinal: i32) -> Result<()> {
    set(ordinal, Some(Rates::default()))?;
    for peer in (0..driver::get()?.device_count()).filter(|peer| *peer != ordinal) {
        set_peer(ordinal, peer, Some(PeerRates::default()))?;
    }
    Ok(())
}

fn set(ordinal: i32, given: Option<Rates>) -> Result<()> {
    Device::get(ordinal)?;
    *lock(&DEVICES.known(ordinal)) = given.map(Rates::loaded);
    *lock(&observed(ordinal)) = ObservedCosts::default();
    Ok(())
}

fn set_peer(ordinal: i32, peer: i32, given: Option<PeerRates>) -> Result<()> {
    *lock(&PEERS.known((ordinal, peer))) = given.map(PeerRates::loaded);
    Ok(())
}

fn ensure_device(device: Device, ordinal: i32, expected: &Uuid) -> Result<()> {
    let found = device.uuid()?;
    ensure!(
        found == *expected,
        InvalidArgument,
        "the rates are of {}, device {ordinal} is {}: measure them again, or set those of this GPU",
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
