// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"math"
	"syscall"
	"unsafe"
)

// Share is a region or a layout in transit to another process: bytes, and the file descriptors that belong to them.
type Share struct {
	object
	parent any
}

func newShare(pointer *C.kvmem_share, parent any) *Share {
	s := &Share{parent: parent}
	s.own("share", unsafe.Pointer(pointer), func(p unsafe.Pointer) { C.kvmem_share_destroy((*C.kvmem_share)(p)) })
	return s
}

func (s *Share) ref() *object {
	if s == nil {
		return nil
	}
	return &s.object
}

// Close closes the handle and the file descriptors of the share, unless a broker publishes it. Regions and layouts that
// were opened from it stay open.
func (s *Share) Close() error { return s.ref().closeObject() }

// ShareOptions are options of Region.Share and Layout.Share.
type ShareOptions struct {
	Flags     ShareFlags
	Transport Transport
}

func (s ShareOptions) c() *C.kvmem_share_options {
	return &C.kvmem_share_options{
		struct_size: C.sizeof_kvmem_share_options, flags: C.uint64_t(s.Flags), transport: C.uint32_t(s.Transport),
	}
}

// Share creates a share of the region.
func (r *Region) Share(options ShareOptions) (*Share, error) {
	var share *C.kvmem_share
	err := r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_share_create_region((*C.kvmem_region)(p), options.c(), &share, failure)
	})
	if err != nil {
		return nil, err
	}
	return newShare(share, r), nil
}

// Share creates a share of the layout: its shape, its regions, and the data for NIXL.
func (l *Layout) Share(options ShareOptions) (*Share, error) {
	var share *C.kvmem_share
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_share_create_layout((*C.kvmem_layout)(p), options.c(), &share, failure)
	})
	if err != nil {
		return nil, err
	}
	return newShare(share, l), nil
}

// Send sends the share over a connected Unix socket of the caller, which must stay open during the call. If the context is
// done first, the socket is shut down: after an error, close it.
func (s *Share) Send(ctx context.Context, socket int) error {
	return onSocket(ctx, socket, func(timeout C.uint64_t) error {
		return s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_share_send((*C.kvmem_share)(p), fdOf(socket), timeout, failure)
		})
	})
}

// ReceiveShare receives a share that Share.Send sent, as Send does. The library does not trust the bytes.
func ReceiveShare(ctx context.Context, socket int) (*Share, error) {
	var share *C.kvmem_share
	err := onSocket(ctx, socket, func(timeout C.uint64_t) error {
		return try(func(failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_share_receive(fdOf(socket), timeout, &share, failure)
		})
	})
	if err != nil {
		C.kvmem_share_destroy(share) // NULL unless the context was done at the end of the call
		return nil, err
	}
	return newShare(share, nil), nil
}

// onSocket makes a call that waits for the peer of a socket. If the context is done, it shuts the socket down, which ends
// the call.
func onSocket(ctx context.Context, socket int, call func(timeout C.uint64_t) error) error {
	if ctx.Err() != nil {
		return contextError(ctx, "the socket was not used")
	}
	stop := make(chan struct{})
	stopped := make(chan bool)
	go func() {
		select {
		case <-ctx.Done():
			_ = syscall.Shutdown(socket, syscall.SHUT_RDWR)
			stopped <- true
		case <-stop:
			stopped <- false
		}
	}()
	err := call(timeoutOf(ctx))
	close(stop)
	shut := <-stopped
	if err == nil && shut {
		return contextError(ctx, "the socket is shut down") // although the peer may have the share
	}
	if _, limited := ctx.Deadline(); err != nil && (shut || limited && isTimeout(err)) {
		return contextError(ctx, err.(*Error).Message)
	}
	return err
}

// fdOf converts a file descriptor. A number that is none in C becomes -1, which the library does not accept.
func fdOf(fd int) C.int32_t {
	if fd < 0 || fd > math.MaxInt32 {
		return -1
	}
	return C.int32_t(fd)
}

func isTimeout(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Status == ErrTimedOut
}

// Data returns the bytes of the share, for a channel of the caller. They give access to the memory: send them only to
// processes that may access it.
func (s *Share) Data() ([]byte, error) {
	var data []byte
	err := s.withInfo(func(i *C.kvmem_share_info) { data = C.GoBytes(i.data, C.int(i.size)) })
	return data, err
}

// FDs returns the file descriptors of the share, which the share owns. Send them to the other process in this order.
func (s *Share) FDs() ([]int, error) {
	var fds []int
	err := s.withInfo(func(i *C.kvmem_share_info) {
		for index := uintptr(0); index < uintptr(i.num_fds); index++ {
			fds = append(fds, int(*(*C.int32_t)(unsafe.Add(unsafe.Pointer(i.fds), index*4))))
		}
	})
	return fds, err
}

// withInfo calls use while the share is open, because the info points to what the share owns.
func (s *Share) withInfo(use func(*C.kvmem_share_info)) error {
	return s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		var i C.kvmem_share_info
		status := C.kvmem_share_get_info((*C.kvmem_share)(p), &i, failure)
		if status == C.KVMEM_STATUS_OK {
			use(&i)
		}
		return status
	})
}

// NewReceivedShare creates a share from bytes and file descriptors that came over a channel of the caller. The file
// descriptors are duplicated, so the caller closes its own.
func NewReceivedShare(data []byte, fds []int) (*Share, error) {
	var a arena
	defer a.free()
	list := make([]uint32, len(fds))
	for i, fd := range fds {
		list[i] = uint32(fdOf(fd))
	}
	var share *C.kvmem_share
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_share_create_received(a.bytes(data), C.size_t(len(data)),
			(*C.int32_t)(unsafe.Pointer(a.words(list))), C.size_t(len(list)), &share, failure)
	})
	if err != nil {
		return nil, err
	}
	return newShare(share, nil), nil
}

// OpenOptions are options of Share.OpenRegion and Share.OpenLayout.
type OpenOptions struct {
	Flags OpenFlags
	// Agent that registers the layout, or accesses it through NIXL; nil for none.
	Agent *Agent
	// Device is the GPU of OpenPin and OpenForDevice; 0 without these flags.
	Device int32
}

func (o OpenOptions) c(a *arena, u *users) (*C.kvmem_open_options, error) {
	agent, err := u.pointer(o.Agent.ref())
	if err != nil {
		return nil, err
	}
	result := newOptions[C.kvmem_open_options](a)
	result.flags = C.uint64_t(o.Flags)
	result.agent = (*C.kvmem_agent)(agent)
	result.device = C.int32_t(o.Device)
	return result, nil
}

// open makes a call with the options in C.
func (s *Share) open(options OpenOptions, call func(*C.kvmem_share, *C.kvmem_open_options, **C.kvmem_error) C.kvmem_status) error {
	var a arena
	defer a.free()
	var u users
	defer u.done()
	o, err := options.c(&a, &u)
	if err != nil {
		return err
	}
	return s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return call((*C.kvmem_share)(p), o, failure)
	})
}

// OpenRegion opens the region of the share: maps its memory.
func (s *Share) OpenRegion(options OpenOptions) (*Region, error) {
	var region *C.kvmem_region
	err := s.open(options, func(p *C.kvmem_share, o *C.kvmem_open_options, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_share_open_region(p, o, &region, failure)
	})
	if err != nil {
		return nil, err
	}
	return newRegion(region, nil), nil
}

// OpenLayout opens the layout of the share: maps its memory, or accesses it through NIXL. Locality of the info of the
// layout is which of the two was chosen.
func (s *Share) OpenLayout(options OpenOptions) (*Layout, error) {
	var layout *C.kvmem_layout
	err := s.open(options, func(p *C.kvmem_share, o *C.kvmem_open_options, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_share_open_layout(p, o, &layout, failure)
	})
	if err != nil {
		return nil, err
	}
	return newLayout(layout, options.Agent), nil
}

// ShareInfo has the properties of a share.
type ShareInfo struct {
	// Size of its bytes: Data.
	Size uint64
	// NumFDs is the number of its file descriptors: FDs.
	NumFDs uint64
	// MemorySize in bytes that it carries; 0 if it carries none.
	MemorySize uint64
	// PID of the owner, in the owner's PID namespace.
	PID    uint32
	Object SharedObject
	// Tier of the memory that it carries; 0 if it carries none.
	Tier Tier
	// ReadOnly: importers may only read.
	ReadOnly bool
	// Transport that was requested or selected.
	Transport Transport
}

// Info returns the properties of the share.
func (s *Share) Info() (ShareInfo, error) {
	var info ShareInfo
	err := s.withInfo(func(i *C.kvmem_share_info) {
		info = ShareInfo{
			Size: uint64(i.size), NumFDs: uint64(i.num_fds), MemorySize: uint64(i.memory_size), PID: uint32(i.pid),
			Object: SharedObject(i.object), Tier: Tier(i.tier), ReadOnly: i.read_only != 0, Transport: Transport(i.transport),
		}
	})
	return info, err
}
