// SPDX-License-Identifier: Apache-2.0
//! The copy rates of the devices of this process, and of pairs of them: measured at first use, unless the caller has
//! set them.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::measure;
use super::measured::Known;
use super::observed::ObservedCosts;
use super::peer::PeerRates;
use super::saved::{Saved, Uuid};
use super::{DEFAULT, Rates, Source};
use crate::base::error::{Error, Result, Status, ensure, fail};
use crate::base::keyed::Keyed;
use crate::base::log::log;
use crate::base::sync::Mutex;
use crate::copy::gpu::device::device_state::DeviceState;
use crate::copy::gpu::direction::CopyDirection;
use crate::cuda::device::UuidText;
use crate::cuda::{Device, driver, quiet};

/// How long a transfer's creation waits for the first measurement, which takes 10 to 30 ms on a GPU without other work. A
/// kernel of the program may occupy the GPU for any time: then defaults are used until the measurement has ended.
const PATIENCE: Duration = Duration::from_millis(30);
/// How long a caller waits who requests the rates.
const QUERY_PATIENCE: Duration = Duration::from_secs(30);

static DEVICES: Keyed<i32, Known<Rates>> = Keyed::new();
/// Keys are the device that executes the copies, and its peer.
static PEERS: Keyed<(i32, i32), Known<PeerRates>> = Keyed::new();

/// Costs that runs of transfers have shown, by device.
static OBSERVED: Keyed<i32, Mutex<ObservedCosts>> = Keyed::new();

/// The inputs of the cost model for one transfer.
pub struct Costs {
    /// The rates. If they were measured, later batches have corrected them.
    pub rates: Rates,
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
        return Costs { rates, busy: 0.0, measured_batch: None, observed: None };
    }
    let observed = OBSERVED.get(device.context().device().ordinal());
    let (seen, now) = (*observed.lock(), Instant::now());
    let measured_batch = (rates.source != Source::Loaded).then_some(rates.in_direction(direction).batched);
    if measured_batch.is_some() {
        let [to_device, to_host] = seen.batch_factors(now);
        rates.to_device.batched *= to_device;
        rates.to_host.batched *= to_host;
    }
    Costs { rates, busy: seen.busy(now), measured_batch, observed: Some(observed) }
}

/// The rates of a device. Defaults replace rates that cannot be measured, or not yet.
fn device_rates(device: &Arc<DeviceState>) -> Rates {
    measured(device, PATIENCE).unwrap_or(DEFAULT)
}

/// The rates of a device, measured if they are unknown; `None` if that takes longer than `patience`.
fn measured(device: &Arc<DeviceState>, patience: Duration) -> Option<Rates> {
    let ordinal = device.context().device().ordinal();
    let known = DEVICES.get(ordinal);
    let device = device.clone();
    let patience = if known.is_known() { patience } else { patience_when_loaded(&device, patience)? };
    known.get_or_measure(patience, move || {
        let started = Instant::now();
        let (times, outcome) = measure::measure(&device);
        log_failure(&format!("device {ordinal}"), &outcome);
        let rates = Rates::plausible(&times.rates());
        log_rates(ordinal, &rates, started.elapsed());
        (rates, outcome)
    })
}

/// Loads the kernel, and returns how long the measurement is waited for. `None` if other work of the device prevents that: then
/// nothing is measured.
fn patience_when_loaded(device: &DeviceState, patience: Duration) -> Option<Duration> {
    let begun = Instant::now();
    // Creating a transfer waits for each separately, because without rates it has others to use.
    let (to_load, in_all) = if patience > PATIENCE { (patience, true) } else { (quiet::PATIENCE, false) };
    let is_busy = device.load_kernel(to_load).is_err_and(|error| error.status() == Status::Busy);
    let left = if in_all { patience.saturating_sub(begun.elapsed()) } else { patience };
    (!is_busy).then_some(left)
}

/// The rates of a device, with those of its peer if it has one.
fn between(device: &Arc<DeviceState>, peer: Option<i32>, direction: CopyDirection) -> Rates {
    let own = device_rates(device);
    let Some(peer) = peer else { return own };
    let unknown = || PeerRates::plausible(&PeerRates::default());
    measured_peer(device, peer, PATIENCE).unwrap_or_else(unknown).complete(own, direction)
}

fn measured_peer(device: &Arc<DeviceState>, peer: i32, patience: Duration) -> Option<PeerRates> {
    let ordinal = device.context().device().ordinal();
    let known = PEERS.get((ordinal, peer));
    let device = device.clone();
    let patience = if known.is_known() { patience } else { patience_when_loaded(&device, patience)? };
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
    match DEVICES.get(ordinal).get(QUERY_PATIENCE) {
        Some(rates) => Ok(rates),
        None => {
            measured(&DeviceState::for_device(ordinal)?, QUERY_PATIENCE).ok_or_else(|| not_measured(ordinal))
        }
    }
}

/// Returns the rates between a device, which executes the copies, and a peer. Measures them if they are unknown.
pub fn get_peer(ordinal: i32, peer: i32) -> Result<PeerRates> {
    ensure_two(ordinal, peer)?;
    match PEERS.get((ordinal, peer)).get(QUERY_PATIENCE) {
        Some(rates) => Ok(rates),
        None => measured_peer(&DeviceState::for_device(ordinal)?, peer, QUERY_PATIENCE)
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
    DEVICES.get(ordinal).set(given.map(Rates::loaded));
    *OBSERVED.get(ordinal).lock() = ObservedCosts::default();
    Ok(())
}

fn set_peer(ordinal: i32, peer: i32, given: Option<PeerRates>) -> Result<()> {
    PEERS.get((ordinal, peer)).set(given.map(PeerRates::loaded));
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
