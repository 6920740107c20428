// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"sync"
	"unsafe"
)

// Transfer moves blocks from one layout to another: created once, submitted any number of times, with other blocks in each
// run or with the same. It keeps both layouts alive. One run is in flight at a time.
type Transfer struct {
	object
	*runs
	parents [3]any
}

// Runs are the runs of a transfer or request.
type runs struct {
	reader *reader
	number uint64 // in the reader
	poll   func(object unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status

	mu       sync.Mutex // held while a run is submitted
	last     *run
	userData uint64
	handle   *handle // of the transfer or request, once it is created
}

// NewTransfer creates a transfer. It moves nothing.
func NewTransfer(source, destination *Layout, options TransferOptions) (*Transfer, error) {
	return newTransfer(source, destination, &options, nil)
}

// StartTransfer creates a transfer and starts its first run.
func StartTransfer(source, destination *Layout, options TransferOptions, first SubmitOptions) (*Transfer, error) {
	return newTransfer(source, destination, &options, &first)
}

// newTransfer also starts a run if first is not nil.
func newTransfer(source, destination *Layout, options *TransferOptions, first *SubmitOptions) (*Transfer, error) {
	if source == nil || destination == nil {
		return nil, invalid("a transfer needs a source and a destination")
	}
	r, reports, err := transferRuns(options)
	if err != nil {
		return nil, err
	}
	var u users
	defer u.done()
	from, err := u.pointer(&source.object)
	if err != nil {
		return nil, err
	}
	to, err := u.pointer(&destination.object)
	if err != nil {
		return nil, err
	}
	queue, err := u.pointer(&r.reader.queue)
	if err != nil {
		return nil, err
	}
	if r.number, err = r.reader.add(reports, r.failure); err != nil {
		return nil, err
	}
	var a arena
	defer a.free()
	o := options.c(&a, (*C.kvmem_queue)(queue))
	err = a.check()
	var step *C.kvmem_submit_options
	if first != nil && err == nil {
		step, err = first.c(&a, r.number)
	}
	if err != nil {
		r.reader.remove(r.number)
		return nil, err
	}

	r.mu.Lock() // until r.handle is set, which failure uses
	defer r.mu.Unlock()
	var transfer *C.kvmem_transfer
	if step != nil {
		err = r.submit(first.UserData, func() error {
			return try(func(failure **C.kvmem_error) C.kvmem_status {
				return C.kvmem_transfer_start((*C.kvmem_layout)(from), (*C.kvmem_layout)(to), o, step, &transfer, failure)
			})
		})
	} else {
		err = try(func(failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_transfer_create((*C.kvmem_layout)(from), (*C.kvmem_layout)(to), o, &transfer, failure)
		})
	}
	if err != nil {
		r.reader.remove(r.number)
		return nil, err
	}
	return ownTransfer(r, transfer, [3]any{source, destination, options.Queue}), nil
}

// transferRuns returns the runs of a transfer that is about to be created, and whether the release of memory is reported.
func transferRuns(options *TransferOptions) (*runs, bool, error) {
	r := &runs{poll: func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_poll((*C.kvmem_transfer)(p), failure)
	}}
	reports := options.Flags&TransferReportRelease != 0
	return r, reports, r.reportTo(options.Queue, reports || options.LayersPerCompletion > 0)
}

// ownTransfer returns the transfer of these runs, whose lock is held.
func ownTransfer(r *runs, transfer *C.kvmem_transfer, parents [3]any) *Transfer {
	t := &Transfer{runs: r, parents: parents}
	t.own("transfer", unsafe.Pointer(transfer), func(p unsafe.Pointer) {
		C.kvmem_transfer_destroy((*C.kvmem_transfer)(p))
		r.reader.remove(r.number)
	})
	r.handle = t.object.handle
	return t
}

// reportTo sets the queue of the caller, or one of this package, which the caller cannot read.
func (r *runs) reportTo(queue *Queue, isRead bool) (err error) {
	if queue == nil {
		if isRead {
			return invalid("completions of layers or of released memory need a Queue")
		}
		r.reader, err = commonReader()
		return err
	}
	if r.reader = queue.reader; r.reader == nil {
		return invalid("the queue is no queue of NewQueue")
	}
	return nil
}

// submitBy starts a run of an object by a call of the library. Without user data it repeats that of the last run.
func (r *runs) submitBy(o *object, userData *uint64, start func(unsafe.Pointer, **C.kvmem_error) C.kvmem_status) error {
	pointer, err := o.use()
	if err != nil {
		return err
	}
	defer o.done()
	r.mu.Lock()
	defer r.mu.Unlock()
	if userData == nil {
		userData = &r.userData
	}
	return r.submit(*userData, func() error {
		return try(func(failure **C.kvmem_error) C.kvmem_status { return start(pointer, failure) })
	})
}

// lastRun returns the run that was started last; nil before the first.
func (r *runs) lastRun() *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// ifLast makes a call unless another run was started since. No run starts during the call.
func (r *runs) ifLast(expected *run, call func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != expected {
		return nil
	}
	return call()
}

// submit registers a run and starts it by a call. The lock is held.
func (r *runs) submit(userData uint64, start func() error) error {
	started, err := r.reader.begin(r.number, userData)
	if err != nil {
		return err
	}
	if err := start(); err != nil {
		r.reader.abandon(r.number, started)
		return err
	}
	r.last, r.userData = started, userData
	return nil
}

// failure describes why the last run failed. The reader calls it before the run is reported to have ended.
func (r *runs) failure(status Status) error {
	r.mu.Lock()
	handle := r.handle
	r.mu.Unlock()
	described := (&object{handle}).call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return r.poll(p, failure)
	})
	if errors.Is(described, status) {
		return described
	}
	return &Error{Status: status, Message: status.Error()} // it is closed, or runs again
}

func (t *Transfer) ref() *object {
	if t == nil {
		return nil
	}
	return &t.object
}

// Close closes the handle. A run in flight continues, keeps what it uses alive, and reports to its queue.
func (t *Transfer) Close() error { return t.ref().closeObject() }

func (t *Transfer) submitBy(userData *uint64, start func(unsafe.Pointer, **C.kvmem_error) C.kvmem_status) error {
	if t == nil || t.runs == nil {
		return t.ref().call(nil)
	}
	return t.runs.submitBy(&t.object, userData, start)
}

// Prepare prepares the blocks of the next run, which Submit(nil) starts. It moves nothing.
func (t *Transfer) Prepare(options SubmitOptions) error {
	if t == nil || t.runs == nil {
		return t.ref().call(nil)
	}
	pointer, err := t.use()
	if err != nil {
		return err
	}
	defer t.done()
	var a arena
	defer a.free()
	o, err := options.c(&a, t.number)
	if err != nil {
		return err
	}
	t.runs.mu.Lock()
	defer t.runs.mu.Unlock()
	err = try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_prepare((*C.kvmem_transfer)(pointer), o, failure)
	})
	if err == nil {
		t.userData = options.UserData
	}
	return err
}

// Submit starts a run with these blocks; nil for those that were prepared or submitted last. It fails with ErrBusy if a run
// is in flight.
func (t *Transfer) Submit(options *SubmitOptions) error {
	return t.submitWith(options, func(p *C.kvmem_transfer, o *C.kvmem_submit_options, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_submit(p, o, failure)
	})
}

func (t *Transfer) submitWith(options *SubmitOptions,
	start func(*C.kvmem_transfer, *C.kvmem_submit_options, **C.kvmem_error) C.kvmem_status) error {
	if options == nil {
		return t.submitBy(nil, func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return start((*C.kvmem_transfer)(p), nil, failure)
		})
	}
	if t == nil || t.runs == nil {
		return t.ref().call(nil)
	}
	var a arena
	defer a.free()
	o, err := options.c(&a, t.number)
	if err != nil {
		return err
	}
	return t.submitBy(&options.UserData, func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return start((*C.kvmem_transfer)(p), o, failure)
	})
}

// Poll returns whether no run is in flight, and how the last one ended. It never waits.
func (t *Transfer) Poll() (ended bool, err error) {
	err = t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		status := C.kvmem_transfer_poll((*C.kvmem_transfer)(p), failure)
		ended = status != C.KVMEM_STATUS_IN_PROGRESS
		return status
	})
	return ended, err
}

// Wait waits for the end of the last run, and returns how it ended. When it returns, the library no longer uses the blocks,
// unless the run ended at its RunTimeout: then CompletionMemoryReleased reports when that is over, with TransferReportRelease.
//
// If the context is done first, Wait cancels the run, still waits for its end, and returns an error that is both
// ErrCancelled and the error of the context. If all parts of the run had started by then, the run ends normally, and so
// does Wait.
func (t *Transfer) Wait(ctx context.Context) error {
	pointer, err := t.ref().use()
	if err != nil {
		return err
	}
	defer t.done()
	last := t.lastRun()
	if last == nil {
		_, err := t.Poll() // the error for a transfer that was never submitted
		return err
	}
	select {
	case <-last.done:
		return last.err
	case <-ctx.Done():
	}
	err = t.ifLast(last, func() error {
		return try(func(failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_transfer_cancel((*C.kvmem_transfer)(pointer), failure)
		})
	})
	if err != nil {
		return err
	}
	<-last.done
	if errors.Is(last.err, ErrCancelled) {
		return &Error{Status: ErrCancelled, Message: last.err.(*Error).Message, wrapped: ctx.Err()}
	}
	return last.err
}

// Cancel cancels the parts of the last run that have not started. It never waits. The run ends with ErrCancelled, or as
// usual if all parts had started; until then it uses its memory.
func (t *Transfer) Cancel() error {
	return t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_cancel((*C.kvmem_transfer)(p), failure)
	})
}

// WaitLayers waits until the first layers of the last run have moved; 0 for all. The transfer needs TransferByLayer. If
// the context is done first, WaitLayers returns its error, and the run continues.
func (t *Transfer) WaitLayers(ctx context.Context, layers uint64) error {
	var ended error // with ErrTimedOut, which inSlices would repeat
	err := inSlices(ctx, func(timeout C.uint64_t) error {
		err := t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_transfer_wait_layers((*C.kvmem_transfer)(p), C.uint64_t(layers), timeout, failure)
		})
		if !errors.Is(err, ErrTimedOut) {
			return err
		}
		if over, outcome := t.Poll(); over && outcome != nil {
			ended = outcome
			return nil
		}
		return err
	})
	if ended != nil {
		return ended
	}
	return err
}
