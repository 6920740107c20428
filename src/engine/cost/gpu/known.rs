// SPDX-License-Identifier: Apache-2.0
//! The copy rates of the devices of this process, and of pairs of them: measured at first use, unless the caller has
//! set them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::observed::ObservedCosts;
use crate::base::{Error, Keyed, Mutex, Result, Status, ensure, fail, log};
use crate::copy::gpu::rates::measured::Known;
use crate::copy::gpu::rates::saved::{Saved, Uuid};
use crate::copy::gpu::rates::{DEFAULT, DirectionRates, Rates, Scope, Source, measure};
use crate::copy::gpu::{CopyDirection, DeviceState};
use crate::cuda::device::UuidText;
use crate::cuda::{Device, Patience, driver, exit};

/// How long a caller waits who requests the rates.
const QUERY_PATIENCE: Duration = Duration::from_secs(30);

/// Keys are the device that executes the copies, and its peer.
static RATES: Keyed<(i32, Option<i32>), Known<Rates>> = Keyed::new();

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

/// The costs of a transfer on a device, in one direction, with its peer if it has one. The first measurement takes 10 to 30 ms on a
/// GPU without other work, which may occupy it for any time: then defaults are used until the measurement has ended.
pub fn costs(
    device: &Arc<DeviceState>,
    peer: Option<i32>,
    direction: CopyDirection,
    patience: &Patience,
) -> Costs {
    let mut rates = between(device, peer, patience);
    if !matches!(direction, CopyDirection::ToDevice | CopyDirection::ToHost) {
        return Costs { rates, busy: 0.0, measured_batch: None, observed: None };
    }
    let observed = OBSERVED.get(device.context().device().ordinal());
    let (seen, now) = (*observed.lock(), Instant::now());
    let measured_batch = (rates.source != Source::Loaded).then_some(rates.in_direction(direction).batched);
    if measured_batch.is_some() {
        rates = rates.submitting(seen.batch_factors(now));
    }
    Costs { rates, busy: seen.busy(now), measured_batch, observed: Some(observed) }
}

/// The rates of a device, with those of its peer if it has one. Defaults replace rates that cannot be measured, or not yet.
fn between(device: &Arc<DeviceState>, peer: Option<i32>, patience: &Patience) -> Rates {
    let own = measured(device, None, patience).unwrap_or(DEFAULT);
    let pair = peer.and_then(|peer| measured(device, Some(peer), patience));
    pair.map_or(own, |pair| own.with_peer(&pair))
}

/// The rates of a device or of a pair, measured if they are unknown; `None` if that takes longer than `patience`.
fn measured(device: &Arc<DeviceState>, peer: Option<i32>, patience: &Patience) -> Option<Rates> {
    let ordinal = device.context().device().ordinal();
    let known = RATES.get((ordinal, peer));
    let device = device.clone();
    // What prevents loading the kernel would delay the measurement, too: then nothing is measured.
    if !known.is_known() && device.load_kernel(patience).is_err_and(|error| error.status() == Status::Busy) {
        return None;
    }
    known.get_or_measure(patience.left(), move || {
        let started = Instant::now();
        let (times, outcome) = measure::measure(device, peer);
        if exit::has_begun() {
            return (DEFAULT, outcome);
        }
        let devices = match peer {
            None => format!("device {ordinal}"),
            Some(peer) => format!("device {ordinal} and its peer {peer}"),
        };
        if let Err(error) = &outcome {
            log!(
                Warn,
                "measure copies of {devices}: {error}; defaults replace the missing rates until a later transfer measures them again"
            );
        }
        let rates = Rates::plausible(&times.rates(), scope(peer));
        log_rates(&devices, peer.is_some(), &rates, started.elapsed());
        (rates, outcome)
    })
}

fn scope(peer: Option<i32>) -> Scope {
    if peer.is_some() { Scope::Pair } else { Scope::Device }
}

fn log_rates(devices: &str, is_pair: bool, rates: &Rates, duration: Duration) {
    let Rates { num_defaults, to_device, to_host, on_device, from_peer, to_peer, .. } = rates;
    // Without peer access there is no kernel to measure, which is worth no warning.
    if *num_defaults > 0 && !is_pair {
        log!(Warn, "{devices}: {num_defaults} measured rates are implausible and were replaced by defaults");
    }
    let gigabytes = |rates: &DirectionRates| rates.link / 1e9;
    let found = match is_pair {
        false => format!(
            "{:.1} GB/s to it, {:.1} to the host, {:.0} within",
            gigabytes(to_device),
            gigabytes(to_host),
            gigabytes(on_device)
        ),
        true => format!(
            "{:.1} GB/s from the peer, {:.1} to it; {num_defaults} rates are defaults",
            gigabytes(from_peer),
            gigabytes(to_peer)
        ),
    };
    log!(Info, "{devices}: copies measured in {:.1} ms: {found}", duration.as_secs_f64() * 1e3);
}

/// Returns the rates of a device, or of a device, which executes the copies, and a peer. Measures them if they are unknown. Fails
/// with BUSY if that takes too long.
pub fn get(ordinal: i32, peer: Option<i32>) -> Result<Rates> {
    ensure_exist(ordinal, peer)?;
    let known = RATES.get((ordinal, peer)).get(QUERY_PATIENCE);
    let measure = || {
        let patience = Patience::needed(QUERY_PATIENCE);
        let measured = measured(&DeviceState::for_device(ordinal)?, peer, &patience);
        measured.ok_or_else(|| not_measured(ordinal))
    };
    known.map_or_else(measure, Ok)
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

/// Serializes the rates, for a later process.
pub fn save(ordinal: i32, peer: Option<i32>) -> Result<Vec<u8>> {
    let rates = get(ordinal, peer)?;
    let peer = peer.map(|peer| Device::get(peer)?.uuid()).transpose()?;
    Saved { device: Device::get(ordinal)?.uuid()?, peer, rates }.write()
}

/// Uses saved rates. `None` discards the known rates: they are measured when they are next needed.
pub fn load(ordinal: i32, peer: Option<i32>, saved: Option<&[u8]>) -> Result<()> {
    ensure_exist(ordinal, peer)?;
    let rates = match saved.map(Saved::read).transpose()? {
        None => None,
        Some(saved) => {
            match (peer, saved.peer) {
                (None, Some(_)) => fail!(
                    InvalidArgument,
                    "the blob has the rates between two GPUs; set it for both, with peer"
                ),
                (Some(_), None) => fail!(
                    InvalidArgument,
                    "the blob has the rates of one GPU; set it with the same GPU as peer"
                ),
                _ => {}
            }
            for (ordinal, uuid) in [Some(ordinal), peer]
                .into_iter()
                .flatten()
                .zip([Some(saved.device), saved.peer].into_iter().flatten())
            {
                ensure_device(Device::get(ordinal)?, ordinal, &uuid)?;
            }
            Some(saved.rates)
        }
    };
    set(ordinal, peer, rates);
    Ok(())
}

/// Uses the built-in rates for a device, and for copies between it and each peer, whichever of the two executes them.
pub fn use_defaults(ordinal: i32) -> Result<()> {
    Device::get(ordinal)?;
    set(ordinal, None, Some(Rates::default()));
    for peer in (0..driver::get()?.device_count()).filter(|peer| *peer != ordinal) {
        set(ordinal, Some(peer), Some(Rates::default()));
        set(peer, Some(ordinal), Some(Rates::default()));
    }
    Ok(())
}

fn set(ordinal: i32, peer: Option<i32>, given: Option<Rates>) {
    RATES.get((ordinal, peer)).set(given.map(|given| Rates::loaded(given, scope(peer))));
    if peer.is_none() {
        *OBSERVED.get(ordinal).lock() = ObservedCosts::default();
    }
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

fn ensure_exist(ordinal: i32, peer: Option<i32>) -> Result<()> {
    Device::get(ordinal)?;
    peer.map(Device::get).transpose()?;
    ensure!(peer != Some(ordinal), InvalidArgument, "device {ordinal} is not a peer of itself");
    Ok(())
}
