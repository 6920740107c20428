// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// Prepared is a list of descriptors that NIXL has resolved once, for one side of requests.
type Prepared struct {
	object
	agent *Agent
}

// PrepareLocal prepares a list for the local side of requests.
func (g *Agent) PrepareLocal(descriptors []Descriptor, options NIXLOptions) (*Prepared, error) {
	return g.prepare(nil, descriptors, options)
}

// PrepareRemote prepares a list for the remote side of requests: memory of a peer whose metadata is loaded, or files and
// objects of the agent itself.
func (g *Agent) PrepareRemote(owner string, descriptors []Descriptor, options NIXLOptions) (*Prepared, error) {
	return g.prepare(&owner, descriptors, options)
}

func (g *Agent) prepare(owner *string, descriptors []Descriptor, options NIXLOptions) (*Prepared, error) {
	var a arena
	defer a.free()
	var text *C.char
	if owner != nil {
		text = a.text(*owner)
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	var prepared *C.kvmem_prepared
	err := g.with(descriptors, options, func(p *C.kvmem_agent, l *C.kvmem_nixl_descriptor, n C.size_t,
		o *C.kvmem_nixl_options, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_prepared_create(p, text, l, n, o, &prepared, failure)
	})
	if err != nil {
		return nil, err
	}
	list := &Prepared{agent: g}
	list.own("prepared list", unsafe.Pointer(prepared), func(p unsafe.Pointer) {
		C.kvmem_prepared_destroy((*C.kvmem_prepared)(p))
	})
	return list, nil
}

// Close closes the prepared list. Requests that were made from it keep it.
func (l *Prepared) Close() error {
	if l == nil {
		return nil
	}
	return l.closeObject()
}

// Request is one NIXL transfer between raw descriptors. It can be posted repeatedly, and keeps its agent, prepared lists
// and the regions of its lists alive. Other memory must stay valid until the request is complete.
type Request struct {
	object
	*runs
	parents [3]any
}

// NewRequest creates a request on descriptors, which correspond by index. The owner of the remote side is a peer whose
// metadata is loaded, or the agent itself for files and objects.
func (g *Agent) NewRequest(operation Operation, local []Descriptor, owner string, remote []Descriptor,
	options NIXLOptions) (*Request, error) {
	if g == nil {
		return nil, invalid("a request needs an agent")
	}
	if len(local) != len(remote) {
		return nil, invalid("the local and the remote descriptors differ in number; they correspond by index")
	}
	var a arena
	defer a.free()
	var u users
	defer u.done()
	text := a.text(owner)
	here, err := u.descriptors(&a, local)
	if err != nil {
		return nil, err
	}
	there, err := u.descriptors(&a, remote)
	if err != nil {
		return nil, err
	}
	return newRequest(&a, []*object{&g.object}, options, [3]any{g}, func(p []unsafe.Pointer, o *C.kvmem_nixl_options,
		request **C.kvmem_request, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_request_create((*C.kvmem_agent)(p[0]), C.uint32_t(operation), here, text, there,
			C.size_t(len(local)), o, request, failure)
	})
}

// MakeRequest creates a request on descriptors of two prepared lists, which correspond by position in both slices of indices.
func MakeRequest(operation Operation, local *Prepared, localIndices []uint32, remote *Prepared, remoteIndices []uint32,
	options NIXLOptions) (*Request, error) {
	if local == nil || remote == nil {
		return nil, invalid("a request needs two prepared lists")
	}
	if len(localIndices) != len(remoteIndices) {
		return nil, invalid("the local and the remote indices differ in number; they correspond by position")
	}
	var a arena
	defer a.free()
	here, there := a.words(localIndices), a.words(remoteIndices)
	objects := []*object{&local.object, &remote.object}
	return newRequest(&a, objects, options, [3]any{local, remote}, func(p []unsafe.Pointer, o *C.kvmem_nixl_options,
		request **C.kvmem_request, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_request_make(C.uint32_t(operation), (*C.kvmem_prepared)(p[0]), here, (*C.kvmem_prepared)(p[1]), there,
			C.size_t(len(localIndices)), o, request, failure)
	})
}

type createRequest func(objects []unsafe.Pointer, options *C.kvmem_nixl_options, request **C.kvmem_request,
	failure **C.kvmem_error) C.kvmem_status

func newRequest(a *arena, objects []*object, options NIXLOptions, parents [3]any, create createRequest) (*Request, error) {
	r := &runs{userData: options.UserData, poll: func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_request_poll((*C.kvmem_request)(p), failure)
	}}
	reports := options.Flags&NIXLReportRelease != 0
	if err := r.reportTo(options.Queue, reports); err != nil {
		return nil, err
	}
	var u users
	defer u.done()
	pointers := make([]unsafe.Pointer, len(objects))
	for i, one := range objects {
		var err error
		if pointers[i], err = u.pointer(one); err != nil {
			return nil, err
		}
	}
	queue, err := u.pointer(&r.reader.queue)
	if err != nil {
		return nil, err
	}
	o := options.c(a)
	if err := a.check(); err != nil {
		return nil, err
	}
	if r.number, err = r.reader.add(reports, r.failure); err != nil {
		return nil, err
	}
	o.queue, o.user_data = (*C.kvmem_queue)(queue), C.uint64_t(r.number)
	var request *C.kvmem_request
	err = try(func(failure **C.kvmem_error) C.kvmem_status { return create(pointers, o, &request, failure) })
	if err != nil {
		r.reader.remove(r.number)
		return nil, err
	}
	parents[2] = options.Queue
	q := &Request{runs: r, parents: parents}
	q.own("request", unsafe.Pointer(request), func(p unsafe.Pointer) {
		C.kvmem_request_destroy((*C.kvmem_request)(p))
		r.reader.remove(r.number)
	})
	r.handle = q.object.handle
	return q, nil
}

func (q *Request) ref() *object {
	if q == nil {
		return nil
	}
	return &q.object
}

func (q *Request) call(f func(*C.kvmem_request, **C.kvmem_error) C.kvmem_status) error {
	return q.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return f((*C.kvmem_request)(p), failure)
	})
}

// Close closes the handle. A run in flight continues: NIXL cannot cancel it. Its memory must stay valid until then.
func (q *Request) Close() error { return q.ref().closeObject() }

// Post starts a run, with the notification of the options.
func (q *Request) Post() error { return q.PostWith(nil) }

// PostWith starts a run with another notification for the peer.
func (q *Request) PostWith(notification []byte) error {
	var a arena
	defer a.free()
	data := a.bytes(notification)
	if q == nil || q.runs == nil {
		return q.ref().call(nil)
	}
	return q.submitBy(q.ref(), nil, func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_request_post((*C.kvmem_request)(p), data, C.size_t(len(notification)), failure)
	})
}

// Poll returns whether no run is in flight, and how the last one ended. It never waits.
func (q *Request) Poll() (ended bool, err error) {
	err = q.call(func(p *C.kvmem_request, failure **C.kvmem_error) C.kvmem_status {
		status := C.kvmem_request_poll(p, failure)
		ended = status != C.KVMEM_STATUS_IN_PROGRESS
		return status
	})
	return ended, err
}

// Wait waits for the end of the last run, and returns how it ended. If the context is done first, Wait returns its error,
// and the run continues: NIXL cannot cancel it.
func (q *Request) Wait(ctx context.Context) error {
	if _, err := q.ref().use(); err != nil {
		return err
	}
	defer q.done()
	last := q.lastRun()
	if last == nil {
		_, err := q.Poll() // the error for a request that was never posted
		return err
	}
	select {
	case <-last.done:
		return last.err
	case <-ctx.Done():
		return contextError(ctx, "the request is in flight")
	}
}

// Backend returns the plugin of the backend that NIXL chose.
func (q *Request) Backend() (string, error) {
	var plugin *C.kvmem_blob
	err := q.call(func(p *C.kvmem_request, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_request_get_backend(p, &plugin, failure)
	})
	if err != nil {
		return "", err
	}
	return string(blob(plugin)), nil
}

// RequestCost is NIXL's estimate of the duration of a request.
type RequestCost struct {
	Duration time.Duration
	// Margin is how far the duration may be from it.
	Margin time.Duration
	// Method is 0 if the backend has calculated it; other values are NIXL's.
	Method uint32
}

// Estimate estimates how long a run takes.
func (q *Request) Estimate() (RequestCost, error) {
	var c C.kvmem_request_cost
	err := q.call(func(p *C.kvmem_request, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_request_estimate(p, &c, failure)
	})
	return RequestCost{time.Duration(c.duration_ns), time.Duration(c.margin_ns), uint32(c.method)}, err
}

// RequestTelemetry has NIXL's measurements of the last run of a request.
type RequestTelemetry struct {
	// Start is when the run was posted, on the monotonic clock of the system.
	Start time.Duration
	// Post is the duration of the call that posted it.
	Post time.Duration
	// Duration of the transfer.
	Duration time.Duration
	// Bytes moved.
	Bytes uint64
	// Descriptors, after NIXL has merged neighbours.
	Descriptors uint64
}

// Telemetry returns NIXL's measurements of the last run. The agent must have been created with AgentTelemetry.
func (q *Request) Telemetry() (RequestTelemetry, error) {
	var c C.kvmem_request_telemetry
	err := q.call(func(p *C.kvmem_request, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_request_get_telemetry(p, &c, failure)
	})
	return RequestTelemetry{
		Start: time.Duration(c.start_ns), Post: time.Duration(c.post_ns), Duration: time.Duration(c.duration_ns),
		Bytes: uint64(c.bytes), Descriptors: uint64(c.descriptors),
	}, err
}

// AgentSums are sums over all runs of an agent's requests since it was created, those of transfers included.
type AgentSums struct {
	// Succeeded, Failed and InFlight are numbers of runs of requests.
	Succeeded, Failed, InFlight uint64
	// BytesRead from peers, files and objects, and BytesWritten to them.
	BytesRead, BytesWritten uint64
	// Descriptors, after NIXL has merged neighbours.
	Descriptors uint64
	// Post is the sum of the durations of the calls that posted the runs.
	Post time.Duration
	// Duration is the sum of the durations of the runs, which may overlap, and Longest the longest of them.
	Duration, Longest time.Duration
	// NotificationsSent without a request, and NotificationsReceived.
	NotificationsSent, NotificationsReceived uint64
}

// Telemetry returns what the agent has moved. The agent must have been created with AgentTelemetry.
func (g *Agent) Telemetry() (AgentSums, error) {
	var c C.kvmem_agent_telemetry
	err := g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_get_telemetry((*C.kvmem_agent)(p), &c, failure)
	})
	return AgentSums{
		Succeeded: uint64(c.succeeded), Failed: uint64(c.failed), InFlight: uint64(c.in_flight),
		BytesRead: uint64(c.bytes_read), BytesWritten: uint64(c.bytes_written), Descriptors: uint64(c.descriptors),
		Post: time.Duration(c.post_ns), Duration: time.Duration(c.duration_ns), Longest: time.Duration(c.longest_ns),
		NotificationsSent: uint64(c.notifications_sent), NotificationsReceived: uint64(c.notifications_received),
	}, err
}
