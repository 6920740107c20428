// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// CopyRates returns the copy rates of a GPU, or between two, by which transfers select their path, as opaque bytes. They are
// measured if they are not known yet. Keep them in a file, and set them in a later process by SetCopyRates. The device does the
// work; a peer that is the device selects its own rates.
func CopyRates(device, peer int32) ([]byte, error) {
	var rates *C.kvmem_blob
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_cuda_get_copy_rates(C.int32_t(device), C.int32_t(peer), &rates, failure)
	})
	if err != nil {
		return nil, err
	}
	return blob(rates), nil
}

// SetCopyRates sets the copy rates of a GPU, or between two; nil discards them, so that they are measured when they are needed
// next.
func SetCopyRates(device, peer int32, rates []byte) error {
	return withBytes(rates, func(data unsafe.Pointer, size C.size_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_cuda_set_copy_rates(C.int32_t(device), C.int32_t(peer), data, size, failure)
	})
}

// UseDefaultRates sets the copy rates of a GPU, and between it and each other GPU, to the built-in ones.
func UseDefaultRates(device int32) error {
	return try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_cuda_use_default_rates(C.int32_t(device), failure)
	})
}

// RatesInfo is a summary of copy rates.
type RatesInfo struct {
	// UUID of the GPU; for rates between two, of the one that does the work.
	UUID UUID
	// PeerUUID of the other GPU; zeroes for rates of one GPU.
	PeerUUID UUID
	// ReadBytesPerSecond of a large copy to the GPU, WriteBytesPerSecond of one from it.
	ReadBytesPerSecond, WriteBytesPerSecond float64
	// LaunchNanoseconds from the launch of a copy kernel until it moves bytes; 0 for rates between two GPUs.
	LaunchNanoseconds float64
	Source            RatesSource
	// NumDefaults is the number of rates that were replaced by scaled defaults.
	NumDefaults uint32
	// Text has all rates, for people.
	Text string
}

// DescribeRates describes copy rates. It needs neither a GPU nor a driver.
func DescribeRates(rates []byte) (RatesInfo, error) {
	var i C.kvmem_rates_info
	var text *C.kvmem_blob
	err := withBytes(rates, func(data unsafe.Pointer, size C.size_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_cuda_describe_rates(data, size, &i, &text, failure)
	})
	if err != nil {
		return RatesInfo{}, err
	}
	return RatesInfo{
		UUID: *(*UUID)(unsafe.Pointer(&i.uuid)), PeerUUID: *(*UUID)(unsafe.Pointer(&i.peer_uuid)),
		ReadBytesPerSecond: float64(i.read_bytes_per_second), WriteBytesPerSecond: float64(i.write_bytes_per_second),
		LaunchNanoseconds: float64(i.launch_ns), Source: RatesSource(i.source), NumDefaults: uint32(i.num_defaults),
		Text: string(blob(text)),
	}, nil
}

// withBytes makes a call with bytes; nil becomes NULL.
func withBytes(data []byte, call func(unsafe.Pointer, C.size_t, **C.kvmem_error) C.kvmem_status) error {
	var a arena
	defer a.free()
	pointer := a.bytes(data)
	return try(func(failure **C.kvmem_error) C.kvmem_status { return call(pointer, C.size_t(len(data)), failure) })
}
