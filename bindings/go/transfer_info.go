// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"errors"
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
	Method   Method
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
		NumRequests: uint64(i.num_requests), Duration: time.Duration(i.duration_ns), Method: Method(i.method),
	}, nil
}

// Explanation is the estimate of a transfer.
type Explanation struct {
	// NumMoves is the number of contiguous ranges.
	NumMoves uint64
	// BytesPerSecond is the estimated throughput.
	BytesPerSecond uint64
	Method         Method
	// Assumed: the throughput is a typical value, because nothing was measured yet.
	Assumed bool
	// Text for people, with a line per method that was compared.
	Text string
}

// Explain returns the method of the transfer, its estimated throughput, and why other methods are not used.
func (t *Transfer) Explain() (Explanation, error) {
	var e C.kvmem_transfer_explanation
	var text *C.kvmem_blob
	err := t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_explain((*C.kvmem_transfer)(p), &e, &text, failure)
	})
	if err != nil {
		return Explanation{}, err
	}
	return Explanation{
		NumMoves: uint64(e.num_moves), BytesPerSecond: uint64(e.bytes_per_second), Method: Method(e.method),
		Assumed: e.assumed != 0, Text: string(blob(text)),
	}, nil
}

// MethodChoice is a method that was compared for a transfer.
type MethodChoice struct {
	Method Method
	Choice Choice
	// BytesPerSecond is the estimated throughput; 0 if unknown.
	BytesPerSecond uint64
	// Reason why the method is not used; empty if it is only slower.
	Reason string
}

// MethodChoices returns the methods that were compared, beginning with the one that the transfer takes.
func (t *Transfer) MethodChoices() ([]MethodChoice, error) {
	var choices []MethodChoice
	for {
		var c C.kvmem_method_choice
		var reason *C.kvmem_blob
		err := t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_transfer_get_method_choice((*C.kvmem_transfer)(p), C.size_t(len(choices)), &c, &reason, failure)
		})
		if errors.Is(err, ErrOutOfRange) {
			return choices, nil
		}
		if err != nil {
			return nil, err
		}
		choices = append(choices, MethodChoice{
			Method: Method(c.method), Choice: Choice(c.choice), BytesPerSecond: uint64(c.bytes_per_second),
			Reason: string(blob(reason)),
		})
	}
}
