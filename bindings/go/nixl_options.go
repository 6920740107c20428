// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"
)

// NIXLOptions are options of calls on raw descriptors. A call fails with ErrInvalidArgument for a field that it does not use.
type NIXLOptions struct {
	Flags NIXLFlags
	// Backends to use, by the names of their plugins, in order of preference; none for all backends of the agent.
	Backends []string
	// Notification for the peer, which gets it when the request is complete. A message without bytes needs NIXLNotify.
	Notification []byte
	// CustomParameter has bytes that the backend understands.
	CustomParameter []byte
	// Queue receives a completion for each run of a request; may be nil.
	Queue *Queue
	// UserData of the completions.
	UserData uint64
	// RunTimeout limits a run of a request; 0 for no limit. A run that takes longer ends with ErrTimedOut, and NIXL may use its memory
	// until the request can be posted again.
	RunTimeout time.Duration
}

// c makes the options of a call; those of requests also have a queue and a number.
func (s NIXLOptions) c(a *arena) *C.kvmem_nixl_options {
	o := (*C.kvmem_nixl_options)(a.allocate(C.sizeof_kvmem_nixl_options))
	o.struct_size = C.sizeof_kvmem_nixl_options
	o.flags = C.uint64_t(s.Flags)
	if len(s.Backends) > 0 {
		names := a.pointers(len(s.Backends))
		for i, name := range s.Backends {
			names[i] = unsafe.Pointer(a.text(name))
		}
		o.backends, o.backend_count = (**C.char)(unsafe.Pointer(&names[0])), C.size_t(len(names))
	}
	if len(s.Notification) > 0 {
		o.notification, o.notification_size = a.bytes(s.Notification), C.size_t(len(s.Notification))
	}
	if len(s.CustomParameter) > 0 {
		o.custom_parameter, o.custom_parameter_size = a.bytes(s.CustomParameter), C.size_t(len(s.CustomParameter))
	}
	o.run_timeout_ns = nanoseconds(s.RunTimeout)
	return o
}

// call returns the options of a call without a request.
func (s NIXLOptions) call(a *arena) (*C.kvmem_nixl_options, error) {
	if s.Queue != nil || s.UserData != 0 {
		return nil, invalid("the options have a queue or user data, and only requests use them")
	}
	o := s.c(a)
	return o, a.check()
}

// with makes a call with an agent, descriptors and options.
func (g *Agent) with(descriptors []Descriptor, options NIXLOptions, call func(*C.kvmem_agent, *C.kvmem_nixl_descriptor,
	C.size_t, *C.kvmem_nixl_options, **C.kvmem_error) C.kvmem_status) error {
	var a arena
	defer a.free()
	o, err := options.call(&a)
	if err != nil {
		return err
	}
	return g.withList(&a, descriptors, func(p *C.kvmem_agent, l *C.kvmem_nixl_descriptor, n C.size_t,
		failure **C.kvmem_error) C.kvmem_status {
		return call(p, l, n, o, failure)
	})
}

// withList makes a call with an agent and descriptors.
func (g *Agent) withList(a *arena, descriptors []Descriptor, call func(*C.kvmem_agent, *C.kvmem_nixl_descriptor, C.size_t,
	**C.kvmem_error) C.kvmem_status) error {
	var u users
	defer u.done()
	list, err := u.descriptors(a, descriptors)
	if err != nil {
		return err
	}
	return g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return call((*C.kvmem_agent)(p), list, C.size_t(len(descriptors)), failure)
	})
}
