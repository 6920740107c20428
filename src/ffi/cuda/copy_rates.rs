// SPDX-License-Identifier: Apache-2.0
//! Copy rates of GPUs.

use std::ffi::c_void;

use crate::ffi::common::{Out, blob, call, call_new, kvmem_blob, kvmem_error, kvmem_status, null, text};
use crate::transfer::known_rates;
use crate::transfer::rates::Source;
use crate::transfer::rates::saved::Saved;

/// Built-in rates: those of one H200 with PCIe 5 x16, and of two with NVLink.
pub const KVMEM_RATES_DEFAULT: u32 = 0;
/// Measured by the process that saved them.
pub const KVMEM_RATES_MEASURED: u32 = 1;
/// Set by the caller of the process that saved them.
pub const KVMEM_RATES_LOADED: u32 = 2;

/// Returns the copy rates of a GPU, or between two, by which transfers select their method. Store them: a
/// later process that sets them (kvmem_cuda_set_copy_rates) measures nothing and selects the same methods.
///
/// If the rates are not known yet, they are measured, as the first transfer on the GPU does: by copies
/// on a stream of kvmem, on a thread of kvmem, for 15 to 30 ms. A measurement uses 64 to 512 MiB of GPU
/// memory: eight times the level 2 cache, and at most an eighth of the free memory. It also uses some host
/// memory, most of which stays page-locked while kvmem has layouts on the GPU. Between two GPUs it uses 16
/// MiB of the memory of each. Rates that cannot be measured are defaults; the log has the reason, and
/// kvmem_cuda_describe_rates returns their number.
///
/// Waits up to 30 s for other work of the GPU and for the measurement. A transfer that gets blocks waits less
/// than 50 ms for rates and kernels, and uses default rates until they are measured. Call this when an engine
/// starts: it also loads the copy kernel, which the driver does not do while a kernel runs.
///
/// @param device the GPU; between two, the one that does the work: that of the destination, or the one that
///        memory of another process was opened for
/// @param peer the other GPU, or the same. No context is created on the other if the first can access it
/// @param rates receives the rates, as opaque bytes with a version and a checksum
/// @return KVMEM_STATUS_BUSY: other work occupies the GPU for 30 s, so nothing is measured yet
///
/// Notes: rates that kvmem observes while transfers run, to select methods, are not included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_get_copy_rates(
    device: i32,
    peer: i32,
    rates: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (rates, "rates"), |_| Ok(blob::value(known_rates::save(device, other(device, peer))?)))
}

/// Sets the copy rates of a GPU, or between two. Nothing is measured. Transfers that exist keep their method.
///
/// @param device the GPU, as for kvmem_cuda_get_copy_rates
/// @param peer the other GPU, or the same one
/// @param data bytes of kvmem_cuda_get_copy_rates for these GPUs, from this process or an earlier one; NULL
///        with size 0 discards the rates, so that they are measured when they are needed next
/// @return KVMEM_STATUS_INVALID_ARGUMENT: the rates are of other GPUs
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_set_copy_rates(
    device: i32,
    peer: i32,
    data: *const c_void,
    size: usize,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |_| {
        let saved = saved_bytes(data, size)?;
        known_rates::load(device, other(device, peer), saved)
    })
}

/// Sets the copy rates of a GPU, and between it and each other GPU, for copies that either of them executes,
/// to the built-in ones. Nothing is measured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_use_default_rates(
    device: i32,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |_| known_rates::use_defaults(device))
}

/// Summary of copy rates.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_rates_info {
    /// UUID of the GPU; for rates between two, of the one that does the work.
    pub uuid: [u8; 16],
    /// UUID of the other GPU; zeroes for rates of one GPU.
    pub peer_uuid: [u8; 16],
    /// Bytes per second of a large copy to the GPU: from page-locked host memory, or from the other GPU.
    pub read_bytes_per_second: f64,
    /// Bytes per second of a large copy from the GPU: to page-locked host memory, or to the other GPU.
    pub write_bytes_per_second: f64,
    /// Nanoseconds from a copy kernel's launch until it moves bytes; 0 between two GPUs.
    pub launch_ns: f64,
    /// KVMEM_RATES_* value.
    pub source: u32,
    /// Number of rates that could not be measured, or were implausible, and were replaced by scaled defaults.
    /// Between GPUs without peer access these are the rates of kernels.
    pub num_defaults: u32,
}

/// Describes copy rates. Needs neither a GPU nor a driver.
///
/// @param data bytes of kvmem_cuda_get_copy_rates
/// @param info receives the summary; may be NULL
/// @param text receives all rates as text for people; may be NULL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_cuda_describe_rates(
    data: *const c_void,
    size: usize,
    info: *mut kvmem_rates_info,
    text: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    // SAFETY: NULL or writable, or readable, by contract.
    unsafe {
        call(error, |_| {
            let text = Out::nullable(text);
            let saved = Saved::read(saved_bytes(data, size)?.ok_or_else(|| null("data"))?)?;
            if let Some(info) = info.as_mut() {
                *info = describe(&saved);
            }
            if let Some(text) = text {
                text.set(blob::value(saved.text().into_bytes()));
            }
            Ok(())
        })
    }
}

/// The peer of a GPU; `None` for the GPU itself.
fn other(device: i32, peer: i32) -> Option<i32> {
    (peer != device).then_some(peer)
}

/// # Safety
/// `data` must be NULL or readable for `size` bytes.
unsafe fn saved_bytes<'a>(data: *const c_void, size: usize) -> crate::base::error::Result<Option<&'a [u8]>> {
    let bytes = text::bytes(data, size, "data")?;
    Ok((!data.is_null()).then_some(bytes))
}

fn describe(saved: &Saved) -> kvmem_rates_info {
    const NS: f64 = 1e-9;
    let Saved { device, peer, rates } = saved;
    let (read, write, start) = match peer {
        None => (&rates.to_device, &rates.to_host, rates.kernel_start),
        Some(_) => (&rates.from_peer, &rates.to_peer, 0.0),
    };
    kvmem_rates_info {
        uuid: *device,
        peer_uuid: peer.unwrap_or_default(),
        read_bytes_per_second: read.link,
        write_bytes_per_second: write.link,
        launch_ns: start / NS,
        source: source_value(rates.source),
        num_defaults: rates.num_defaults,
    }
}

fn source_value(source: Source) -> u32 {
    match source {
        Source::Default => KVMEM_RATES_DEFAULT,
        Source::Measured => KVMEM_RATES_MEASURED,
        Source::Loaded => KVMEM_RATES_LOADED,
    }
}
