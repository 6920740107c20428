// SPDX-License-Identifier: Apache-2.0
//! What copies cost on the devices of this process: measured when it is first asked for, unless the caller has said it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use super::calibration;
use super::engine::Engine;
use super::rates::Rates;
use crate::cuda::Device;
use crate::error::{Result, ensure};
use crate::log::{HoldBack, log};

/// What is known of a device. Whoever measures holds it, and others wait for that.
type Known = Arc<Mutex<Option<Rates>>>;

/// By ordinal.
static DEVICES: Mutex<Vec<(i32, Known)>> = Mutex::new(Vec::new());

/// What copies of an engine cost; never fails.
pub fn of(engine: &Engine) -> Rates {
    let known = known(engine.context().device().ordinal());
    let _late = HoldBack::begin();
    let mut rates = lock(&known);
    if let Some(rates) = *rates {
        return rates;
    }
    let started = Instant::now();
    let (times, outcome) = calibration::measure(engine);
    let measured = Rates::plausible(&times.rates());
    *rates = Some(measured);
    drop(rates);
    let (ordinal, took) = (engine.context().device().ordinal(), started.elapsed());
    if let Err(error) = outcome {
        log!(Warn, "measure copies of device {ordinal}: {error}; defaults stand in for what is missing");
    }
    tell(ordinal, &measured, took.as_secs_f64() * 1e3);
    measured
}

fn tell(ordinal: i32, rates: &Rates, milliseconds: f64) {
    let Rates { num_defaults, to_device, to_host, on_device, .. } = rates;
    if *num_defaults > 0 {
        log!(
            Warn,
            "device {ordinal}: {num_defaults} figures of copies can't be what was measured, and are defaults"
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

/// What copies of a device cost.
pub fn get(ordinal: i32) -> Result<Rates> {
    Device::get(ordinal)?;
    let answer = *lock(&known(ordinal));
    match answer {
        Some(rates) => Ok(rates),
        None => Ok(of(&*Engine::of(ordinal)?)),
    }
}

/// Takes a caller's figures for those of a device; without any they are measured when they are needed next.
pub fn set(ordinal: i32, given: Option<Rates>) -> Result<()> {
    Device::get(ordinal)?;
    let loaded = given.map(Rates::loaded);
    ensure!(
        loaded.is_none_or(Rates::are_numbers),
        InvalidArgument,
        "a rate or time of copies is negative or no number; 0 takes the default"
    );
    *lock(&known(ordinal)) = loaded;
    Ok(())
}

fn known(ordinal: i32) -> Known {
    let mut devices = lock(&DEVICES);
    if let Some((_, known)) = devices.iter().find(|(of, _)| *of == ordinal) {
        return known.clone();
    }
    let known = Known::default();
    devices.push((ordinal, known.clone()));
    known
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
