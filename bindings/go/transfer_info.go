// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"
)

// String returns the name of a method, such as "CUDA kernel".
func (m Method) String() string { return C.GoString(C.kvmem_method_name(C.uint32_t(m))) }

// TransferInfo has the properties of a transfer.
type TransferInfo struct {
	// Bytes to move.
	Bytes uint64
	// NumPieces is one per block, layer and outer slot.
	NumPieces uint64
	// NumMoves is the number of contiguous ranges, after adjacent pieces were merged.
	NumMoves uint64
	// NumRequests of NIXL, or reads or writes of a file.
	NumRequests uint64
	// Duration of the last run that has ended, from submit to the end.
	Duration time.Duration
	// LayersMoved of the last run, counted from the first. Their blocks can be used.
	LayersMoved uint64
	Method      Method
}

// Info returns the properties of the transfer.
func (t *Transfer) Info() (TransferInfo, error) {
	var i C.kvmem_transfer_info
	err := t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_get_info((*C.kvmem_transfer)(p), &i, failure)
	})
	if err != nil {
		return TransferInfo{}, err
	}
	return TransferInfo{
		Bytes: uint64(i.bytes), NumPieces: uint64(i.num_pieces), NumMoves: uint64(i.num_moves),
		NumRequests: uint64(i.num_requests), Duration: time.Duration(i.duration_ns),
		LayersMoved: uint64(i.layers_moved), Method: Method(i.method),
	}, nil
}

// Explain returns text for people, with a line per method that was compared.
func (t *Transfer) Explain() (string, error) {
	var text *C.kvmem_blob
	err := t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_explain((*C.kvmem_transfer)(p), &text, failure)
	})
	if err != nil {
		return "", err
	}
	return string(blob(text)), nil
}

// ComparedMethod is a method that was compared for a transfer.
type ComparedMethod struct {
	Method Method
	Choice Choice
	// BytesPerSecond is the estimated throughput; 0 if unknown.
	BytesPerSecond uint64
	// Assumed: the throughput is a typical value, because nothing was measured yet.
	Assumed bool
	// Reason why the method is not used; empty if it is only slower.
	Reason string
}

// Methods returns the methods that were compared, beginning with the one that the transfer takes.
func (t *Transfer) Methods() ([]ComparedMethod, error) {
	var found [16]C.kvmem_compared_method
	var count C.size_t
	err := t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_get_methods((*C.kvmem_transfer)(p), &found[0], C.size_t(len(found)), &count, failure)
	})
	if err != nil {
		return nil, err
	}
	filled := found[:]
	if int(count) < len(filled) {
		filled = filled[:count]
	}
	methods := make([]ComparedMethod, len(filled))
	for i := range methods {
		m := &filled[i]
		methods[i] = ComparedMethod{
			Method: Method(m.method), Choice: Choice(m.choice), BytesPerSecond: uint64(m.bytes_per_second),
			Assumed: m.assumed != 0, Reason: C.GoString(&m.reason[0]),
		}
	}
	return methods, nil
}

// Mismatches returns the indices of the pairs, or of the moved tokens of block tables, that differ after the last run, which has
// compared them.
func (t *Transfer) Mismatches() ([]uint64, error) {
	return found(func(p *uint64, n int, count *C.size_t) error {
		return t.ref().call(func(h unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_transfer_get_mismatches((*C.kvmem_transfer)(h), (*C.uint64_t)(p), C.size_t(n), count, failure)
		})
	})
}

// Checksums returns the checksums that the last run has computed, with SubmitChecksum.
func (t *Transfer) Checksums() ([]uint32, error) {
	return found(func(p *uint32, n int, count *C.size_t) error {
		return t.ref().call(func(h unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_transfer_get_checksums((*C.kvmem_transfer)(h), (*C.uint32_t)(p), C.size_t(n), count, failure)
		})
	})
}

// found gets a list, of the last run or of what is in progress, which another goroutine may make longer between two calls.
func found[T any](get func(items *T, capacity int, count *C.size_t) error) ([]T, error) {
	var items []T
	for {
		var first *T
		if len(items) > 0 {
			first = &items[0]
		}
		var count C.size_t
		if err := get(first, len(items), &count); err != nil {
			return nil, err
		}
		if int(count) <= len(items) {
			return items[:count], nil
		}
		items = make([]T, count)
	}
}
