// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"unsafe"
)

// Segments are descriptors that an agent has registered: memory that is in no region, files, objects and blocks.
type Segments struct {
	object
	agent *Agent
}

// RegisterDescriptors registers descriptors with the agent: with the backends of the options, or with all that accept the
// memory type. The memory must stay valid until they are deregistered.
func (g *Agent) RegisterDescriptors(descriptors []Descriptor, options NIXLOptions) (*Segments, error) {
	var segments *C.kvmem_segments
	err := g.with(descriptors, options, func(p *C.kvmem_agent, l *C.kvmem_nixl_descriptor, n C.size_t,
		o *C.kvmem_nixl_options, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_segments_register(p, l, n, o, &segments, failure)
	})
	if err != nil {
		return nil, err
	}
	s := &Segments{agent: g}
	s.own("registered descriptors", unsafe.Pointer(segments), func(p unsafe.Pointer) {
		C.kvmem_segments_destroy((*C.kvmem_segments)(p))
	})
	return s, nil
}

func (s *Segments) ref() *object {
	if s == nil {
		return nil
	}
	return &s.object
}

// Close deregisters the descriptors; if a request on them is in flight, at its end. Wait for requests before.
func (s *Segments) Close() error { return s.ref().closeObject() }

// Deregister deregisters the descriptors, and reports whether that failed. It fails with ErrBusy if a request on them is in
// flight. Requests and prepared lists that use them fail with ErrStale from then on.
func (s *Segments) Deregister() error {
	return s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_segments_deregister((*C.kvmem_segments)(p), failure)
	})
}

// QueryResult is the result of a backend for one descriptor.
type QueryResult struct {
	// Exists is true if the file, object or memory exists.
	Exists bool
	// Properties have the names that the backend gives them.
	Properties map[string]string
}

// Query returns whether files, objects or memory exist at a backend. The options name the backend, unless only one accepts
// the memory type. If the context is done first, the call continues without its caller.
func (g *Agent) Query(ctx context.Context, descriptors []Descriptor, options NIXLOptions) ([]QueryResult, error) {
	call := func(timeout C.uint64_t) ([]QueryResult, error) {
		var query *C.kvmem_query
		err := g.with(descriptors, options, func(p *C.kvmem_agent, l *C.kvmem_nixl_descriptor, n C.size_t,
			o *C.kvmem_nixl_options, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_agent_query(p, l, n, o, timeout, &query, failure)
		})
		if err != nil {
			return nil, err
		}
		defer C.kvmem_query_destroy(query)
		var items []C.kvmem_query_result = unsafe.Slice(query.items, int(query.count))
		results := make([]QueryResult, len(items))
		for i, c := range items {
			results[i] = QueryResult{Exists: c.exists != 0, Properties: parametersOf(c.parameters, c.parameter_count)}
		}
		return results, nil
	}
	return outlived(ctx, call, func([]QueryResult) {})
}

// MemoryView is registered memory that kernels on a GPU can access through NIXL's device API.
type MemoryView struct {
	object
	agent  *Agent
	handle unsafe.Pointer
}

// NewMemoryView creates a view of memory of the agent, or of memory of peers if the descriptors name agents.
func (g *Agent) NewMemoryView(descriptors []Descriptor, options NIXLOptions) (*MemoryView, error) {
	var (
		view   *C.kvmem_memory_view
		handle unsafe.Pointer
	)
	err := g.with(descriptors, options, func(p *C.kvmem_agent, l *C.kvmem_nixl_descriptor, n C.size_t,
		o *C.kvmem_nixl_options, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_memory_view_create(p, l, n, o, &handle, &view, failure)
	})
	if err != nil {
		return nil, err
	}
	v := &MemoryView{agent: g, handle: handle}
	v.own("memory view", unsafe.Pointer(view), func(p unsafe.Pointer) { C.kvmem_memory_view_destroy((*C.kvmem_memory_view)(p)) })
	return v, nil
}

func (v *MemoryView) ref() *object {
	if v == nil {
		return nil
	}
	return &v.object
}

// Close closes the view. No kernel may use it any more.
func (v *MemoryView) Close() error { return v.ref().closeObject() }

// Handle returns the handle for NIXL's device API, which is valid as long as the view; nil if the view is closed.
func (v *MemoryView) Handle() unsafe.Pointer {
	var handle unsafe.Pointer
	_ = v.ref().call(func(unsafe.Pointer, **C.kvmem_error) C.kvmem_status {
		handle = v.handle
		return C.KVMEM_STATUS_OK
	})
	return handle
}

// PartialMetadata returns metadata of some of the agent's memory, which a peer adds to the loaded metadata. That of no
// descriptors has the connection information, which a peer loads first.
func (g *Agent) PartialMetadata(descriptors []Descriptor, options NIXLOptions) ([]byte, error) {
	var metadata *C.kvmem_blob
	err := g.with(descriptors, options, func(p *C.kvmem_agent, l *C.kvmem_nixl_descriptor, n C.size_t,
		o *C.kvmem_nixl_options, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_get_partial_metadata(p, l, n, o, &metadata, failure)
	})
	if err != nil {
		return nil, err
	}
	return blob(metadata), nil
}

// SendPartialMetadata sends metadata of some of the agent's memory to the listen thread of a peer. Its arrival is not
// certain.
func (g *Agent) SendPartialMetadata(descriptors []Descriptor, address string, port uint32) error {
	var a arena
	defer a.free()
	text := a.text(address)
	if err := a.check(); err != nil {
		return err
	}
	return g.withList(&a, descriptors, func(p *C.kvmem_agent, l *C.kvmem_nixl_descriptor, n C.size_t,
		failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_send_partial_metadata(p, l, n, text, C.uint32_t(port), failure)
	})
}

// RemoteLayout creates a remote layout over raw memory of a peer, which need not use kvmem: one descriptor per region of the
// layout, in their order.
func (g *Agent) RemoteLayout(owner string, config LayoutConfig, descriptors []Descriptor) (*Layout, error) {
	var a arena
	defer a.free()
	text, shape := a.text(owner), config.c(&a)
	if err := a.check(); err != nil {
		return nil, err
	}
	var layout *C.kvmem_layout
	err := g.withList(&a, descriptors, func(p *C.kvmem_agent, l *C.kvmem_nixl_descriptor, n C.size_t,
		failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_create_remote(p, text, shape, l, n, &layout, failure)
	})
	if err != nil {
		return nil, err
	}
	return newLayout(layout, g), nil
}
