// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// How long a reader waits after a failure of the library.
const retry = 20 * time.Millisecond

// Completion is the end of a run of a transfer or request, layers that have moved, memory that is released, or the arrival of
// messages or events.
type Completion struct {
	Kind CompletionKind
	// UserData of the transfer, request or report, or of the SubmitOptions of the run.
	UserData uint64
	// Bytes moved; 0 after a failure.
	Bytes uint64
	// NumLayers of the run that have moved, from the first on; 0 for requests.
	NumLayers uint64
	// Released is true if the run no longer uses its memory.
	Released bool
	// Err is nil, or how the run failed; of CompletionMemoryReleased nil, or ErrBusy if nothing will detect when the memory is
	// released.
	Err error
}

// Queue is a queue of completions. One goroutine reads them from the library, and sleeps in the netpoller while there are
// none. No completion is lost, whatever the number in flight.
type Queue struct {
	object // owns the reader rather than an object of the library
	*reader
}

// NewQueue creates an empty queue.
func NewQueue() (*Queue, error) {
	r, err := newReader()
	if err != nil {
		return nil, err
	}
	q := &Queue{reader: r}
	q.own("queue", r.queue.handle.pointer, func(unsafe.Pointer) { r.close() })
	return q, nil
}

func (q *Queue) ref() *object {
	if q == nil {
		return nil
	}
	return &q.object
}

// Close closes the queue. Transfers that report to it continue; their completions are discarded, but their Wait still
// returns.
func (q *Queue) Close() error {
	if q == nil || q.reader == nil {
		return nil
	}
	q.reader.close() // at once, although goroutines in Next use the queue
	return q.closeObject()
}

// Next removes the oldest completion from the queue, and waits for one if there is none.
func (q *Queue) Next(ctx context.Context) (Completion, error) {
	if _, err := q.ref().use(); err != nil {
		return Completion{}, err
	}
	defer q.done()
	for {
		if completion, ok := q.take(); ok {
			return completion, nil
		}
		select {
		case <-q.arrival:
		case <-q.closing:
			return Completion{}, errQueueClosed()
		case <-ctx.Done():
			return Completion{}, contextError(ctx, "no completion arrived")
		}
	}
}

// Poll removes the oldest completion from the queue, if there is one. It never waits.
func (q *Queue) Poll() (completion Completion, ok bool) {
	if _, err := q.ref().use(); err != nil {
		return Completion{}, false
	}
	defer q.done()
	return q.take()
}

func errQueueClosed() error {
	return &Error{Status: ErrInvalidArgument, Message: "the queue is closed", wrapped: os.ErrClosed}
}

// A run is one run of a transfer.
type run struct {
	done     chan struct{}
	userData uint64
	err      error // valid when done is closed
}

// A reader takes completions from a queue of the library and gives each to its run. The user data of the library is the
// number of the transfer, request or source.
type reader struct {
	queue   object
	file    *os.File      // a duplicate of the event fd, for the netpoller
	arrival chan struct{} // has an element if completions may have arrived
	closing chan struct{} // closed by close

	mu          sync.Mutex
	closed      bool
	inFlight    int
	next        uint64
	transfers   map[uint64]*flights
	sources     map[uint64]uint64 // number of a source that is no transfer: user data
	completions []Completion
	keep        bool // whether completions are kept for Next
}

// Flights are the runs of one transfer whose completions have not arrived, oldest first.
type flights struct {
	runs    []*run
	ended   *run               // the run whose memory will be reported as released
	reports bool               // the release of memory is reported
	gone    bool               // the transfer is closed
	failure func(Status) error // describes the failure of the last run
}

func newReader() (*reader, error) {
	var queue *C.kvmem_queue
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_queue_create(&queue, failure) })
	if err != nil {
		return nil, err
	}
	r := &reader{
		arrival: make(chan struct{}, 1), closing: make(chan struct{}), transfers: map[uint64]*flights{},
		sources: map[uint64]uint64{}, keep: true,
	}
	r.queue.handle = &handle{kind: "queue", pointer: unsafe.Pointer(queue), destroy: func(p unsafe.Pointer) {
		C.kvmem_queue_destroy((*C.kvmem_queue)(p))
	}}
	var fd C.int32_t
	err = try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_queue_get_fd(queue, &fd, failure) })
	if err == nil {
		err = r.openFile(int(fd))
	}
	if err != nil {
		r.queue.handle.close()
		return nil, err
	}
	go r.read()
	return r, nil
}

func (r *reader) openFile(fd int) error {
	duplicate, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return &Error{Status: ErrOutOfMemory, Message: "duplicate the event fd of the queue: " + errno.Error(), wrapped: errno}
	}
	// The event fd is non-blocking, so the file uses the netpoller.
	r.file = os.NewFile(duplicate, "kvmem queue")
	return nil
}

// read runs until the queue is closed and all runs that report to it have ended.
func (r *reader) read() {
	defer r.queue.handle.close()
	defer r.file.Close()
	connection, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	entries := make([]C.kvmem_completion, 64)
	for {
		var count C.size_t
		var failed error
		err := connection.Read(func(uintptr) bool {
			failed = r.queue.call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
				return C.kvmem_queue_wait((*C.kvmem_queue)(p), 0, &entries[0], C.size_t(len(entries)), &count, failure)
			})
			return failed != nil || count > 0
		})
		for _, entry := range entries[:count] {
			r.complete(uint64(entry.user_data), Completion{
				Kind: CompletionKind(entry.kind), Bytes: uint64(entry.bytes), NumLayers: uint64(entry.num_layers),
				Released: entry.released != 0,
			}, Status(entry.status))
		}
		if failed != nil {
			time.Sleep(retry) // without memory, for example; the runs use theirs until their ends are known
		}
		r.mu.Lock()
		last := r.closed && r.inFlight == 0
		r.mu.Unlock()
		if last || err != nil {
			return
		}
	}
}

// complete gives a completion to its run, and ends that if it is the end.
func (r *reader) complete(number uint64, completion Completion, status Status) {
	r.mu.Lock()
	userData, isSource := r.sources[number]
	f := r.transfers[number]
	var current *run
	switch {
	case isSource:
		completion.UserData = userData
	case f == nil:
		r.mu.Unlock()
		return
	case completion.Kind == CompletionMemoryReleased:
		completion.UserData = f.ended.userData
		f.ended = nil
		r.forget(number, f)
		if status < 0 {
			completion.Err = &Error{Status: status, Message: "nothing will detect when the memory of the run is released"}
		}
	default:
		current = f.runs[0]
		completion.UserData = current.userData
	}
	if completion.Kind == CompletionRunEnded {
		r.mu.Unlock()
		if status < 0 {
			current.err = f.failure(status)
		}
		completion.Err = current.err
		r.mu.Lock()
		f.runs = f.runs[1:]
		if f.reports && !completion.Released {
			f.ended = current
		}
		r.forget(number, f)
		r.inFlight--
		defer close(current.done)
	}
	if r.keep && !r.closed {
		r.completions = append(r.completions, completion)
	}
	r.mu.Unlock()
	r.notify()
}

func (r *reader) notify() {
	select {
	case r.arrival <- struct{}{}:
	default:
	}
}

// forget removes a transfer that is closed and has nothing to report. The lock is held.
func (r *reader) forget(number uint64, f *flights) {
	if f.gone && len(f.runs) == 0 && f.ended == nil {
		delete(r.transfers, number)
	}
}

func (r *reader) take() (Completion, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.completions) == 0 {
		return Completion{}, false
	}
	first := r.completions[0]
	r.completions = r.completions[1:]
	if len(r.completions) > 0 {
		r.notify() // for another goroutine in Next
	}
	return first, true
}

// add gives a transfer a number, and notes whether it reports the release of memory.
func (r *reader) add(reports bool, failure func(Status) error) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errQueueClosed()
	}
	r.next++
	r.transfers[r.next] = &flights{reports: reports, failure: failure}
	return r.next, nil
}

// addSource gives a number to what reports to the queue without runs.
func (r *reader) addSource(userData uint64) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errQueueClosed()
	}
	r.next++
	r.sources[r.next] = userData
	return r.next, nil
}

func (r *reader) removeSource(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sources, number)
}

func (r *reader) remove(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.transfers[number]; f != nil {
		f.gone = true
		r.forget(number, f)
	}
}

// begin adds a run, before the library can report its end.
func (r *reader) begin(number, userData uint64) (*run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.transfers[number]
	if r.closed || f == nil {
		return nil, errQueueClosed()
	}
	started := &run{done: make(chan struct{}), userData: userData}
	f.runs = append(f.runs, started)
	r.inFlight++
	return started, nil
}

// abandon removes a run that has not started.
func (r *reader) abandon(number uint64, failed *run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.transfers[number]
	for i, other := range f.runs {
		if other == failed {
			f.runs = append(f.runs[:i:i], f.runs[i+1:]...)
			r.inFlight--
			break
		}
	}
	r.closeFileWhenUnused()
}

func (r *reader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	r.completions = nil
	close(r.closing)
	r.closeFileWhenUnused()
}

// closeFileWhenUnused ends the goroutine that reads. The lock is held.
func (r *reader) closeFileWhenUnused() {
	if r.closed && r.inFlight == 0 {
		r.file.Close()
	}
}

var common struct {
	mu     sync.Mutex
	reader *reader
}

// commonReader returns the reader of transfers without a queue of the caller, which exists until the process ends.
func commonReader() (*reader, error) {
	common.mu.Lock()
	defer common.mu.Unlock()
	if common.reader == nil {
		r, err := newReader()
		if err != nil {
			return nil, err
		}
		r.keep = false
		common.reader = r
	}
	return common.reader, nil
}
