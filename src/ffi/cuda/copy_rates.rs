// SPDX-License-Identifier: Apache-2.0
//! What copies of a GPU cost.

use crate::error::Result;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::options::init;
use crate::ffi::common::options::options;
use crate::ffi::common::options::read_nullable;
use crate::ffi::common::options::write_known;
use crate::ffi::common::status::kvmem_status;
use crate::transfer::known_rates;
use crate::transfer::rates::{DirectionRates, Rates, Source};

/// Figures the library brings: of one H200 with PCIe 5 x16.
pub const KVMEM_RATES_DEFAULT: u32 = 0;
/// Measured by this process.
pub const KVMEM_RATES_MEASURED: u32 = 1;
/// Given by the caller: kvmem_cuda_set_copy_rates, kvmem_cuda_set_peer_rates.
pub const KVMEM_RATES_LOADED: u32 = 2;

/// What copies in one direction cost.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_direction_rates {
    /// Bytes a second of one large copy of the driver's.
    pub bytes_per_second: f64,
    /// Nanoseconds of the CPU for each copy of a batch, however small. Between GPUs, and within one: of the
    /// copy engine.
    pub batch_copy_ns: f64,
    /// Bytes a second of a copy kernel with as many CTAs as are worth having.
    pub kernel_bytes_per_second: f64,
    /// Bytes a second of each CTA while there are few.
    pub cta_bytes_per_second: f64,
}

/// What copies of a GPU cost: the figures by which transfers choose their path. Plain numbers, to be kept in
/// a file or a configuration and given back to a later process on the same machine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_copy_rates {
    /// sizeof(kvmem_copy_rates)
    pub struct_size: usize,
    /// A KVMEM_RATES_* value: where the figures come from. Not read by kvmem_cuda_set_copy_rates.
    pub source: u32,
    /// How many figures that are to be measured could not be, or were beyond belief, and are defaults, in
    /// proportion to the others; the log says why. Not read by kvmem_cuda_set_copy_rates.
    pub num_defaults: u32,
    /// From page-locked host memory to the GPU.
    pub to_device: kvmem_direction_rates,
    /// From the GPU to page-locked host memory.
    pub to_host: kvmem_direction_rates,
    /// Within the GPU.
    pub on_device: kvmem_direction_rates,
    /// Bytes a second between the GPU and host memory that is not page-locked.
    pub pageable_bytes_per_second: f64,
    /// Nanoseconds of one copy of the driver's beside its bytes.
    pub copy_ns: f64,
    /// Nanoseconds until a copy kernel has begun to move bytes.
    pub kernel_start_ns: f64,
}
options!(kvmem_copy_rates);

/// Fills rates with zeroes, which stand for the defaults.
///
/// @param rates the caller's struct; NULL does nothing
/// @param struct_size sizeof(*rates); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_copy_rates_init(rates: *mut kvmem_copy_rates, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(rates, struct_size) };
}

/// Returns what copies of a GPU cost. If that is not known yet, it is measured, as the first transfer on the
/// GPU does: by a few copies on a stream of the library's own, with 64 MiB of the GPU's memory and 10 MiB of
/// the host's for 15 to 30 ms. If that fails, the rates are defaults, and the log and num_defaults say so.
///
/// These are the measured rates. What transfers show while they run, and path selection uses too, is not in
/// them.
///
/// Threads: any; others that need the figures of the GPU wait for them.
///
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param rates gets the answer; its struct_size must be set, and no more is written
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for NULL or a struct_size that can't be;
///         KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there;
///         KVMEM_STATUS_CUDA without a context
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_get_copy_rates(
    device: i32,
    rates: *mut kvmem_copy_rates,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: NULL or writable as far as its struct_size says, by contract.
    unsafe { call(error, |_| write_known(rates, || known_rates::get(device).map(|known| of(&known)))) }
}

/// Sets the rates of a GPU, such as those that an earlier run has measured: then none are measured here.
/// Transfers that exist already keep their path.
///
/// The rates are used as given: batches that turn out to be slower or faster do not change them. How busy
/// compute keeps the GPU is still observed.
///
/// Threads: any.
///
/// @param device the GPU, as CUDA_VISIBLE_DEVICES orders them
/// @param rates the figures, where 0 stands for the default; copied. NULL forgets what is known: it is
///              measured when it is next needed, as after a first measurement beside other work
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for a figure that is negative or no number;
///         KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_set_copy_rates(
    device: i32,
    rates: *const kvmem_copy_rates,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| -> Result<()> {
        // SAFETY: NULL or readable as far as its struct_size says, by contract.
        let given = unsafe { read_nullable(rates) }?;
        known_rates::set(device, given.as_ref().map(given_by))
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

const NS: f64 = 1e-9;

impl kvmem_direction_rates {
    pub(in crate::ffi) fn of(known: &DirectionRates) -> Self {
        Self {
            bytes_per_second: known.link,
            batch_copy_ns: known.batched / NS,
            kernel_bytes_per_second: known.kernel,
            cta_bytes_per_second: known.cta,
        }
    }

    pub(in crate::ffi) fn given(&self) -> DirectionRates {
        DirectionRates {
            link: self.bytes_per_second,
            batched: self.batch_copy_ns * NS,
            kernel: self.kernel_bytes_per_second,
            cta: self.cta_bytes_per_second,
        }
    }
}

/// The KVMEM_RATES_* value of where figures come from.
pub(in crate::ffi) fn source_value(source: Source) -> u32 {
    match source {
        Source::Default => KVMEM_RATES_DEFAULT,
        Source::Measured => KVMEM_RATES_MEASURED,
        Source::Loaded => KVMEM_RATES_LOADED,
    }
}

fn of(rates: &Rates) -> kvmem_copy_rates {
    kvmem_copy_rates {
        struct_size: size_of::<kvmem_copy_rates>(),
        source: source_value(rates.source),
        num_defaults: rates.num_defaults,
        to_device: kvmem_direction_rates::of(&rates.to_device),
        to_host: kvmem_direction_rates::of(&rates.to_host),
        on_device: kvmem_direction_rates::of(&rates.on_device),
        pageable_bytes_per_second: rates.pageable,
        copy_ns: rates.copy / NS,
        kernel_start_ns: rates.kernel_start / NS,
    }
}

fn given_by(rates: &kvmem_copy_rates) -> Rates {
    Rates {
        to_device: rates.to_device.given(),
        to_host: rates.to_host.given(),
        on_device: rates.on_device.given(),
        pageable: rates.pageable_bytes_per_second,
        copy: rates.copy_ns * NS,
        kernel_start: rates.kernel_start_ns * NS,
        ..Rates::default()
    }
}
