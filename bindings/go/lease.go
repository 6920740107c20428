// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"math"
	"time"
	"unsafe"
)

// NoEnd is the remaining time of a lease that ends when it is closed.
const NoEnd time.Duration = math.MaxInt64

// LeaseOptions are options of Layout.Lease.
type LeaseOptions struct {
	Flags LeaseFlags
	// Duration after which the lease ends; 0: it ends when it is closed, or of a remote layout after as long as its owner keeps leases.
	Duration time.Duration
	// Timeout is the time in which the owner of a remote layout must reply; 0 for 5 s.
	Timeout time.Duration
}

// Lease is a lease of blocks: an announcement to the owner of memory that this process uses them.
type Lease struct {
	object
	layout *Layout
}

// Lease leases blocks of memory that is mapped here, or that its owner serves, so that the owner sees by Accesses who uses them. It
// keeps no block from being reused: epochs detect that.
func (l *Layout) Lease(blocks []uint32, options LeaseOptions) (*Lease, error) {
	ids := append(append([]uint32{}, blocks...), 0)
	c := C.kvmem_lease_options{
		struct_size: C.sizeof_kvmem_lease_options, flags: C.uint64_t(options.Flags), duration_ns: nanoseconds(options.Duration),
		timeout_ns: nanoseconds(options.Timeout),
	}
	var lease *C.kvmem_lease
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_lease_create(
			(*C.kvmem_layout)(p), (*C.uint32_t)(&ids[0]), C.size_t(len(blocks)), &c, &lease, failure)
	})
	if err != nil {
		return nil, err
	}
	e := &Lease{layout: l}
	e.own("lease", unsafe.Pointer(lease), func(p unsafe.Pointer) { C.kvmem_lease_destroy((*C.kvmem_lease)(p)) })
	return e, nil
}

func (e *Lease) ref() *object {
	if e == nil {
		return nil
	}
	return &e.object
}

// Close ends the lease.
func (e *Lease) Close() error { return e.ref().closeObject() }

// Renew has the lease end after a duration from now on; 0: when it is closed. It fails with ErrStale if the lease is over.
func (e *Lease) Renew(duration time.Duration) error {
	return e.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_lease_renew((*C.kvmem_lease)(p), nanoseconds(duration), failure)
	})
}

// Remaining returns the time until the lease ends: 0 if it is over, NoEnd if it ends when it is closed.
func (e *Lease) Remaining() (time.Duration, error) {
	var ns C.uint64_t
	err := e.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_lease_get_remaining((*C.kvmem_lease)(p), &ns, failure)
	})
	return remaining(ns), err
}

func remaining(ns C.uint64_t) time.Duration {
	if uint64(ns) > uint64(NoEnd) {
		return NoEnd
	}
	return time.Duration(ns)
}
