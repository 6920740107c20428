/* SPDX-License-Identifier: Apache-2.0 */
/* kvmem: statuses, errors, timeouts, blobs, log, versions. Generated from src/ffi; do not edit.
 *
 * kvmem.h describes what all functions have in common. A caller that looks at a failure:
 *
 *     if (kvmem_region_create_system(&options, &region, &error) != KVMEM_STATUS_OK)
 *         fprintf(stderr, "%s\n", kvmem_error_message(error, NULL));
 *     kvmem_error_destroy(error);
 */

#ifndef KVMEM_BASE_H
#define KVMEM_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statuses ---- */

/// Result of a call: KVMEM_STATUS_OK, a positive state such as KVMEM_STATUS_IN_PROGRESS, or a negative error.
/// A value is never renumbered or reused.
typedef int32_t kvmem_status;

#define KVMEM_STATUS_OK 0  ///< The call succeeded.
#define KVMEM_STATUS_IN_PROGRESS 1  ///< The run is in flight.
#define KVMEM_STATUS_INVALID_ARGUMENT (-1)  ///< An argument is invalid, whatever the library's state.
#define KVMEM_STATUS_OUT_OF_MEMORY (-2)  ///< Memory, disk space or another resource is exhausted.
#define KVMEM_STATUS_OUT_OF_RANGE (-3)  ///< An index or a size is outside the object.
#define KVMEM_STATUS_NOT_FOUND (-4)  ///< The named object does not exist.
#define KVMEM_STATUS_ALREADY_EXISTS (-5)  ///< The object to create already exists.
#define KVMEM_STATUS_INVALID_STATE (-6)  ///< The state of the object does not allow the call.
#define KVMEM_STATUS_BUSY (-7)  ///< The object is in use.
#define KVMEM_STATUS_TIMED_OUT (-8)  ///< The timeout expired.
#define KVMEM_STATUS_CANCELLED (-9)  ///< The work was cancelled.
#define KVMEM_STATUS_UNSUPPORTED (-10)  ///< The operation is not supported, here or in general.
#define KVMEM_STATUS_PERMISSION_DENIED (-11)  ///< The system or a peer denied access.
#define KVMEM_STATUS_UNAVAILABLE_CUDA (-12)  ///< There is no usable CUDA driver; the message says why.
#define KVMEM_STATUS_UNAVAILABLE_NIXL (-13)  ///< There is no usable NIXL library; the message says why.
#define KVMEM_STATUS_CUDA (-14)  ///< The CUDA driver reported an error.
#define KVMEM_STATUS_NIXL (-15)  ///< NIXL reported an error.
#define KVMEM_STATUS_IO (-16)  ///< The operating system reported an error.
#define KVMEM_STATUS_PEER_LOST (-17)  ///< The peer process has ended.
#define KVMEM_STATUS_STALE (-18)  ///< What the handle refers to has changed since.
#define KVMEM_STATUS_CORRUPT (-19)  ///< Received or stored bytes are damaged or malicious.
#define KVMEM_STATUS_VERSION_MISMATCH (-20)  ///< Received or stored bytes have an unsupported version.
/// A bug in kvmem. Later calls with the same objects fail with KVMEM_STATUS_INVALID_STATE.
#define KVMEM_STATUS_PANIC (-21)

/// Returns the name of a status, such as "KVMEM_STATUS_BUSY". The string is static.
/// @param status any value; the name of an unknown one is "KVMEM_STATUS_UNKNOWN"
const char *kvmem_status_name(kvmem_status status);

/// Returns the meaning of a status in one sentence. The string is static.
const char *kvmem_status_message(kvmem_status status);

/* ---- Errors ---- */

/// Describes a failure: status, message and native cause. An error never changes, so any threads may read it
/// at the same time. The caller destroys it.
typedef struct kvmem_error kvmem_error;

#define KVMEM_DOMAIN_NONE 0  ///< There is no native cause.
#define KVMEM_DOMAIN_ERRNO 1  ///< The code is an errno value.
#define KVMEM_DOMAIN_NIXL 2  ///< The code is a status of NIXL's C API.
#define KVMEM_DOMAIN_CUDA 3  ///< The code is a CUresult.

/// Native cause of an error: the error of the library or system that kvmem called.
typedef struct kvmem_error_cause {
    uint32_t domain;  ///< KVMEM_DOMAIN_* value.
    int32_t code;  ///< Code in that domain; 0 without a cause.
    const char *name;  ///< Name of the code, such as "ENOSPC"; "" without one. Valid as long as the error.
} kvmem_error_cause;

/// Returns the status of an error.
/// @param error an error; NULL returns KVMEM_STATUS_OK
kvmem_status kvmem_error_status(const kvmem_error *error);

/// Returns the message of an error: the request, the reason, and often a remedy, in UTF-8. It is one line,
/// as those of the log. The string is valid as long as the error.
/// @param error an error; NULL returns ""
/// @param length receives the length in bytes, without the terminating NUL; may be NULL
const char *kvmem_error_message(const kvmem_error *error, size_t *length);

/// Returns the native cause of an error.
/// @param cause receives the cause; its domain is KVMEM_DOMAIN_NONE if kvmem itself found the error
kvmem_status kvmem_error_get_cause(const kvmem_error *error, kvmem_error_cause *cause);

/// Destroys an error.
void kvmem_error_destroy(kvmem_error *error);

/* ---- Timeouts ---- */

#define KVMEM_TIMEOUT_FOREVER UINT64_MAX  ///< A timeout that never expires, for every `timeout_ns`.

/* ---- Blobs ---- */

/// Bytes or text that kvmem created. A NUL follows the last byte, so that text can be used as a C string.
typedef struct kvmem_blob kvmem_blob;

/// Returns the first byte of a blob. The pointer is valid as long as the blob.
/// @param blob a blob; NULL returns NULL
const void *kvmem_blob_data(const kvmem_blob *blob);

/// Returns the size of a blob in bytes, without the terminating NUL.
/// @param blob a blob; NULL returns 0
size_t kvmem_blob_size(const kvmem_blob *blob);

/// Destroys a blob.
void kvmem_blob_destroy(kvmem_blob *blob);

/* ---- Log ---- */

#define KVMEM_LOG_OFF 0  ///< No messages.
#define KVMEM_LOG_ERROR 1  ///< Failures that no return value can report.
#define KVMEM_LOG_WARN 2  ///< Something works, but not as well as requested.
#define KVMEM_LOG_INFO 3  ///< Milestones, such as a loaded library, and methods that the setup makes slow.
/// Creation and destruction of regions, layouts and transfers; start and end of runs; opened files,
/// registrations, shares; failed calls. Objects have numbers, as in "transfer #7".
#define KVMEM_LOG_DEBUG 4
#define KVMEM_LOG_TRACE 5  ///< All calls, timeouts, and the steps of operations.

/// Receives one message. Target and message are UTF-8 and valid during the call. A message is one line:
/// control characters in it, such as those of names, are escaped as in "\n" and "\u{1b}", and so are
/// separators of lines and marks of the direction of text.
///
/// kvmem calls it on a dedicated thread, one message at a time, in the order in which the messages were
/// logged. It may call any function of kvmem and may block: only kvmem_log_set_callback waits for it.
/// Messages that kvmem logs on the callback's own thread are not delivered. Work that the callback starts on
/// other threads is logged: a callback that starts a transfer for each transfer message never ends.
///
/// Up to 4 MiB of messages are queued. Others are dropped, and one at KVMEM_LOG_ERROR reports their number.
///
/// Notes: target is the module that logged, such as "kvmem::transfer". Targets may change between versions.
typedef void (*kvmem_log_callback)(uint32_t level, const char *target, const char *message, void *user_data);

/// Sets the log callback of the process, or removes it.
///
/// Messages that were logged before are delivered to the previous callback, then the function returns. After
/// it returns, the previous callback is not running and is not called again, so its user data can be freed.
/// The caller must not hold a lock that the previous callback takes.
///
/// Called from the log callback itself, the function cannot wait: it discards the queued messages, and the
/// previous callback is not called again after its running call returns.
/// @param level least important level to deliver, a KVMEM_LOG_* value; KVMEM_LOG_OFF removes the callback
/// @param callback the function to call; NULL removes the callback
/// @param user_data passed to every call
/// @return KVMEM_STATUS_OUT_OF_MEMORY: the callback's thread could not be started; nothing has changed
///
/// Notes: messages that are still queued when the process ends are lost; remove the callback before. Remove a
/// callback that is part of a shared object before dlclose. A forked child starts without a callback.
kvmem_status kvmem_log_set_callback(uint32_t level, kvmem_log_callback callback, void *user_data,
    kvmem_error **error);

/* ---- Versions ---- */

#define KVMEM_VERSION_MAJOR 0  ///< Major version of the headers.
#define KVMEM_VERSION_MINOR 1  ///< Minor version of the headers. Before 1.0 a new one may break programs.
#define KVMEM_VERSION_PATCH 0  ///< Patch version of the headers.
/// Number of the binary interface, and of the SONAME: libkvmem.so.2. It is raised by each change that a
/// compiled program would notice: a removed function, other parameters, other fields of a struct. New
/// functions and constants do not raise it.
#define KVMEM_ABI_VERSION 2

/// Returns the version of the library, such as "0.1.0". The string is static.
const char *kvmem_version_string(void);

/// Returns the number of the library's binary interface. A program that was compiled with another
/// KVMEM_ABI_VERSION must not use the library: the loader does not find it under another number, and the
/// bindings for C++, Go, Python and Zig compare both when they are loaded.
uint32_t kvmem_abi_version(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVMEM_BASE_H */
