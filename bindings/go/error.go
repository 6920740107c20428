// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"syscall"
)

// Status is the result of a call. The statuses of failures are errors, for errors.Is.
type Status int32

const (
	// StatusOK: the call succeeded.
	StatusOK Status = C.KVMEM_STATUS_OK
	// StatusInProgress: the run is in flight.
	StatusInProgress Status = C.KVMEM_STATUS_IN_PROGRESS

	// ErrInvalidArgument: an argument is invalid, independent of the state of the library.
	ErrInvalidArgument Status = C.KVMEM_STATUS_INVALID_ARGUMENT
	// ErrOutOfMemory: memory, disk space or another resource is exhausted.
	ErrOutOfMemory Status = C.KVMEM_STATUS_OUT_OF_MEMORY
	// ErrOutOfRange: an index or a size is outside the object.
	ErrOutOfRange Status = C.KVMEM_STATUS_OUT_OF_RANGE
	// ErrNotFound: the named object does not exist.
	ErrNotFound Status = C.KVMEM_STATUS_NOT_FOUND
	// ErrAlreadyExists: the object to create already exists.
	ErrAlreadyExists Status = C.KVMEM_STATUS_ALREADY_EXISTS
	// ErrInvalidState: the state of the object does not allow the call.
	ErrInvalidState Status = C.KVMEM_STATUS_INVALID_STATE
	// ErrBusy: the object is in use.
	ErrBusy Status = C.KVMEM_STATUS_BUSY
	// ErrTimedOut: the timeout expired.
	ErrTimedOut Status = C.KVMEM_STATUS_TIMED_OUT
	// ErrCancelled: the work was cancelled.
	ErrCancelled Status = C.KVMEM_STATUS_CANCELLED
	// ErrUnsupported: the operation is not supported, here or in general.
	ErrUnsupported Status = C.KVMEM_STATUS_UNSUPPORTED
	// ErrPermissionDenied: the system or a peer denied access.
	ErrPermissionDenied Status = C.KVMEM_STATUS_PERMISSION_DENIED
	// ErrUnavailableCUDA: there is no usable CUDA driver.
	ErrUnavailableCUDA Status = C.KVMEM_STATUS_UNAVAILABLE_CUDA
	// ErrUnavailableNIXL: there is no usable NIXL library.
	ErrUnavailableNIXL Status = C.KVMEM_STATUS_UNAVAILABLE_NIXL
	// ErrCUDA: the CUDA driver reported an error.
	ErrCUDA Status = C.KVMEM_STATUS_CUDA
	// ErrNIXL: NIXL reported an error.
	ErrNIXL Status = C.KVMEM_STATUS_NIXL
	// ErrIO: the operating system reported an error.
	ErrIO Status = C.KVMEM_STATUS_IO
	// ErrPeerLost: the peer process has ended.
	ErrPeerLost Status = C.KVMEM_STATUS_PEER_LOST
	// ErrStale: what the handle refers to has changed since.
	ErrStale Status = C.KVMEM_STATUS_STALE
	// ErrCorrupt: received or stored bytes are damaged or malicious.
	ErrCorrupt Status = C.KVMEM_STATUS_CORRUPT
	// ErrVersionMismatch: received or stored bytes have a version that this library cannot read.
	ErrVersionMismatch Status = C.KVMEM_STATUS_VERSION_MISMATCH
	// ErrPanic: a bug in kvmem. Later calls with the same objects fail with ErrInvalidState.
	ErrPanic Status = C.KVMEM_STATUS_PANIC
)

// Name returns the name of a status in C, such as "KVMEM_STATUS_BUSY".
func (s Status) Name() string { return C.GoString(C.kvmem_status_name(C.kvmem_status(s))) }

// Error returns the meaning of a status in one sentence.
func (s Status) Error() string { return C.GoString(C.kvmem_status_message(C.kvmem_status(s))) }

// Error describes a failure.
type Error struct {
	// Status, for which errors.Is compares.
	Status Status
	// Message has the request, the reason, and often a remedy.
	Message string
	// Domain of the native cause: the error of the library or system that kvmem called.
	Domain Domain
	// Code of the cause in that domain; 0 without a cause.
	Code int32
	// CodeName is the name of the code, such as "ENOSPC"; "" without a cause.
	CodeName string

	// The Go error behind the failure, such as that of a context.
	wrapped error
}

// Error returns the name of the status and the message.
func (e *Error) Error() string { return "kvmem: " + e.Status.Name() + ": " + e.Message }

// Is reports whether target is the status of the error.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// Unwrap returns the syscall.Errno that caused the error, or the error of a context, or os.ErrClosed; nil if there is
// none of these.
func (e *Error) Unwrap() error {
	if e.wrapped != nil {
		return e.wrapped
	}
	if e.Domain == DomainErrno {
		return syscall.Errno(e.Code)
	}
	return nil
}

func invalid(message string) error {
	return &Error{Status: ErrInvalidArgument, Message: message}
}

// check returns the error of a call, and destroys the one of the library.
func check(status C.kvmem_status, failure **C.kvmem_error) error {
	if status >= 0 {
		return nil
	}
	result := &Error{Status: Status(status)}
	if *failure == nil {
		result.Message = result.Status.Error()
		return result
	}
	defer func() {
		C.kvmem_error_destroy(*failure)
		*failure = nil
	}()
	var length C.size_t
	message := C.kvmem_error_message(*failure, &length)
	result.Status = Status(C.kvmem_error_status(*failure))
	result.Message = C.GoStringN(message, C.int(length))
	var cause C.kvmem_error_cause
	if C.kvmem_error_get_cause(*failure, &cause) == C.KVMEM_STATUS_OK {
		result.Domain = Domain(cause.domain)
		result.Code = int32(cause.code)
		result.CodeName = C.GoString(cause.name)
	}
	return result
}
