// SPDX-License-Identifier: Apache-2.0
//! What copies between two GPUs cost.

use crate::error::Result;
use crate::ffi::common::error::kvmem_error;
use crate::ffi::common::guard::call;
use crate::ffi::common::options::init;
use crate::ffi::common::options::options;
use crate::ffi::common::options::read_nullable;
use crate::ffi::common::options::write_known;
use crate::ffi::common::status::kvmem_status;
use crate::ffi::cuda::copy_rates::kvmem_direction_rates;
use crate::ffi::cuda::copy_rates::source_value;
use crate::transfer::known_rates;
use crate::transfer::peer_rates::PeerRates;

/// What copies between a GPU and another one cost, the first doing the work: that is the GPU of the
/// destination, or the one for which memory of another process was opened. Plain numbers, to be kept as those
/// of kvmem_copy_rates are.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_peer_rates {
    /// sizeof(kvmem_peer_rates)
    pub struct_size: usize,
    /// A KVMEM_RATES_* value: where the figures come from. Not read by kvmem_cuda_set_peer_rates.
    pub source: u32,
    /// How many figures could not be measured, or were beyond belief, and are defaults, in proportion to the
    /// others; those of the kernel are where the GPU can't access the other one. Not read by
    /// kvmem_cuda_set_peer_rates.
    pub num_defaults: u32,
    /// From the other GPU to this one. Where this one can't access the other, the driver's copies are those
    /// that it passes through the host.
    pub read: kvmem_direction_rates,
    /// From this GPU to the other one.
    pub write: kvmem_direction_rates,
}
options!(kvmem_peer_rates);

/// Fills rates with zeroes, which stand for the defaults: of two H200 and NVLink.
///
/// @param rates the caller's struct; NULL does nothing
/// @param struct_size sizeof(*rates); no more is written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_peer_rates_init(rates: *mut kvmem_peer_rates, struct_size: usize) {
    // SAFETY: by contract.
    unsafe { init(rates, struct_size) };
}

/// Tells what copies between two GPUs cost. Where that is not known yet it is measured, as the first transfer
/// between the two would: by a few copies on a stream of the library's own, with 16 MiB of the memory of
/// each. Where that fails there are defaults, and the log and num_defaults say so. No context is made on the
/// other GPU, unless it is out of this one's reach.
///
/// Threads: any; others that need the figures of the two wait for them.
///
/// @param device the GPU that does the work, as CUDA_VISIBLE_DEVICES orders them
/// @param peer the other one
/// @param rates gets the answer; its struct_size must be set, and no more is written
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for NULL, a struct_size that can't be, or one GPU
///         twice; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there;
///         KVMEM_STATUS_CUDA without a context
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_get_peer_rates(
    device: i32,
    peer: i32,
    rates: *mut kvmem_peer_rates,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: NULL or writable as far as its struct_size says, by contract.
    unsafe {
        call(error, |_| write_known(rates, || known_rates::get_peer(device, peer).map(|known| of(&known))))
    }
}

/// Gives the figures for two GPUs, such as those that an earlier run has measured: then none are measured
/// here. Transfers that are there already keep their path.
///
/// Threads: any.
///
/// @param device the GPU that does the work, as CUDA_VISIBLE_DEVICES orders them
/// @param peer the other one
/// @param rates the figures, where 0 stands for the default; copied. NULL forgets what is known: it is
///              measured when it is next needed
/// @param error gets the failure; may be NULL
/// @return KVMEM_STATUS_OK; KVMEM_STATUS_INVALID_ARGUMENT for one GPU twice, or a figure that is negative or
///         no number; KVMEM_STATUS_UNAVAILABLE_CUDA; KVMEM_STATUS_OUT_OF_RANGE for a device that is not there
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_set_peer_rates(
    device: i32,
    peer: i32,
    rates: *const kvmem_peer_rates,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    let body = |_: &_| -> Result<()> {
        // SAFETY: NULL or readable as far as its struct_size says, by contract.
        let given = unsafe { read_nullable(rates) }?;
        known_rates::set_peer(device, peer, given.as_ref().map(given_by))
    };
    // SAFETY: NULL or writable, by contract.
    unsafe { call(error, body) }
}

fn of(rates: &PeerRates) -> kvmem_peer_rates {
    kvmem_peer_rates {
        struct_size: size_of::<kvmem_peer_rates>(),
        source: source_value(rates.source),
        num_defaults: rates.num_defaults,
        read: kvmem_direction_rates::of(&rates.read),
        write: kvmem_direction_rates::of(&rates.write),
    }
}

fn given_by(rates: &kvmem_peer_rates) -> PeerRates {
    PeerRates { read: rates.read.given(), write: rates.write.given(), ..PeerRates::default() }
}
