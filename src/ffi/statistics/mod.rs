// SPDX-License-Identifier: Apache-2.0
//! Counters of the process.

pub mod counters;
mod objects;
mod reports;
mod series;
mod text;
mod trace;

use crate::base::error;
use crate::ffi::common::{blob, call, call_new, kvmem_blob, kvmem_error, kvmem_status, write};
use crate::ffi::transfer::method::METHODS;
use crate::share::report_socket::serve;
use counters::{current, kvmem_method_statistics, kvmem_statistics, of_method};

/// Returns what exists in this process, and what has happened in it. Waits for nothing, and stops nothing.
///
///     kvmem_statistics statistics = {.struct_size = sizeof statistics};
///     status = kvmem_statistics_get(&statistics, &error);
///
/// @param statistics `struct_size` is set by the caller; all other fields are written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_statistics_get(
    statistics: *mut kvmem_statistics,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |_| write(statistics, current))
}

/// Returns what has happened by one method. Waits for nothing, and stops nothing.
///
///     kvmem_method_statistics statistics = {.struct_size = sizeof statistics};
///     status = kvmem_statistics_get_method(KVMEM_METHOD_URING, &statistics, &error);
///
/// @param method KVMEM_METHOD_* value; 0 for requests on raw descriptors (kvmem/nixl_raw.h), whose latencies
///        are not measured
/// @param statistics `struct_size` is set by the caller; all other fields are written
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_statistics_get_method(
    method: u32,
    statistics: *mut kvmem_method_statistics,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call(error, |_| {
        let known = METHODS.iter().find(|(value, _)| *value == method).map(|(_, method)| *method);
        if known.is_none() && method != 0 {
            return Err(error!(
                InvalidArgument,
                "method is {method}, which is no KVMEM_METHOD_* value, nor 0 for requests on raw descriptors"
            ));
        }
        write(statistics, || of_method(known))
    })
}

/// Returns the same as text in the format of Prometheus, version 0.0.4, for an HTTP endpoint of the caller,
/// and more: failed calls, leases that layouts keep for peers, and what has happened to each agent, layout,
/// queue and store. docs/statistics.md lists the metrics. A method that has no runs has no lines. Waits for
/// nothing but a queue or the index of a store that another thread uses at this moment.
///
/// @return KVMEM_STATUS_OUT_OF_MEMORY
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_statistics_text(
    text: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (text, "text"), |_| Ok(blob::value(text::all()?.into_bytes())))
}

/// Returns the last 10,000 runs that have ended, with their phases, as JSON in the trace format of Chrome,
/// which ui.perfetto.dev shows. docs/statistics.md describes the events. Waits for nothing, and stops
/// nothing.
///
///     kvmem_blob *json = NULL;
///     status = kvmem_trace_export(&json, &error);
///     fwrite(kvmem_blob_data(json), 1, kvmem_blob_size(json), file);
///     kvmem_blob_destroy(json);
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_trace_export(
    json: *mut *mut kvmem_blob,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (json, "json"), |_| Ok(blob::value(trace::all()?.into_bytes())))
}

/// Lets other processes of this user, and of root, read the statistics and the trace of this process:
/// `kvmem-doctor top PID` shows them. Does nothing if it was called before; the process serves until it ends.
///
/// Opens the abstract Unix socket `kvmem-reports-PID`, and starts one thread. A forked child serves nothing
/// until it calls this.
///
/// @return KVMEM_STATUS_ALREADY_EXISTS: another process has the name of the socket
///         KVMEM_STATUS_OUT_OF_MEMORY: the thread was not started
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_statistics_serve(error: *mut *mut kvmem_error) -> kvmem_status {
    call(error, |_| serve(reports::of_kind))
}
