// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"time"
)

const forever = C.uint64_t(C.KVMEM_TIMEOUT_FOREVER)

// contextError is the error of a call that ended because its context is done.
func contextError(ctx context.Context, message string) error {
	err := ctx.Err()
	status := ErrCancelled
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		status, err = ErrTimedOut, context.DeadlineExceeded
	}
	return &Error{Status: status, Message: message + ": " + err.Error(), wrapped: err}
}

// timeoutOf returns the nanoseconds until the deadline of a context.
func timeoutOf(ctx context.Context) C.uint64_t {
	deadline, ok := ctx.Deadline()
	if !ok {
		return forever
	}
	left := time.Until(deadline)
	if left < 0 {
		left = 0
	}
	return C.uint64_t(left)
}

// A wait in the library that ends when its context is done is divided into slices of this length.
const slice = C.uint64_t(20 * time.Millisecond)

// inSlices repeats a call that waits and can be repeated after ErrTimedOut, until the context is done.
func inSlices(ctx context.Context, call func(timeout C.uint64_t) error) error {
	return inSlicesOf(ctx, slice, call)
}

func inSlicesOf(ctx context.Context, slice C.uint64_t, call func(timeout C.uint64_t) error) error {
	for {
		timeout := timeoutOf(ctx)
		if ctx.Done() != nil && timeout > slice {
			timeout = slice
		}
		err := call(timeout)
		if !errors.Is(err, ErrTimedOut) {
			return err
		}
		if timeout < slice || ctx.Err() != nil {
			return contextError(ctx, err.(*Error).Message)
		}
	}
}

type outcome[T any] struct {
	value T
	err   error
}

// outlived makes a call that waits and cannot be repeated, unless the context is done already. If the context is done during
// the call, it continues until the deadline, and its result is discarded.
func outlived[T any](ctx context.Context, call func(timeout C.uint64_t) (T, error), discard func(T)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, contextError(ctx, "the call was not made")
	}
	ended := make(chan outcome[T], 1)
	go func() {
		value, err := call(timeoutOf(ctx))
		ended <- outcome[T]{value, err}
	}()
	select {
	case o := <-ended:
		if errors.Is(o.err, ErrTimedOut) && !errors.Is(o.err, context.DeadlineExceeded) {
			if _, limited := ctx.Deadline(); limited {
				o.err = contextError(ctx, o.err.(*Error).Message)
			}
		}
		return o.value, o.err
	case <-ctx.Done():
		go func() {
			if o := <-ended; o.err == nil {
				discard(o.value)
			}
		}()
		return none, contextError(ctx, "the call is not waited for")
	}
}
