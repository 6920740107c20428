// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// UUID identifies a GPU. Unlike its ordinal, it is the same in every process.
type UUID [16]byte

// CUDAInfo is the CUDA driver of this machine.
type CUDAInfo struct {
	// DriverVersion is the CUDA version that the driver implements: 1000 × major + 10 × minor.
	DriverVersion int32
	// DeviceCount is the number of GPUs that this process may use, at least 1.
	DeviceCount int32
}

// GetCUDAInfo finds and initialises the CUDA driver, and returns its version. It fails with ErrUnavailableCUDA if there is
// no driver, it is too old, or it has no GPU.
func GetCUDAInfo() (CUDAInfo, error) {
	var i C.kvmem_cuda_info
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_cuda_get_info(&i, failure) })
	if err != nil {
		return CUDAInfo{}, err
	}
	return CUDAInfo{DriverVersion: int32(i.driver_version), DeviceCount: int32(i.device_count)}, nil
}

// CUDADeviceInfo has the properties of a GPU, as its driver reports them.
type CUDADeviceInfo struct {
	Name string
	UUID UUID
	// TotalMemory in bytes.
	TotalMemory  uint64
	Capabilities CUDACapabilities
	// MinimumGranularity and RecommendedGranularity of sizes and offsets of VMM memory, in bytes.
	MinimumGranularity, RecommendedGranularity uint64
	// KeptObjects were destroyed, and are kept with KeptBytes of memory until the GPU has finished its work, or for ever after a run
	// whose end can't be detected.
	KeptObjects, KeptBytes uint64
	// CanAccess has the GPUs whose memory this one can map: bit i is GPU i.
	CanAccess uint64
	// ComputeCapabilityMajor and ComputeCapabilityMinor, such as 9 and 0.
	ComputeCapabilityMajor, ComputeCapabilityMinor uint32
	Multiprocessors                                uint32
	// NUMANode that the GPU is attached to; -1 if the driver does not report it.
	NUMANode int32
}

// GetCUDADeviceInfo returns the properties of a GPU.
func GetCUDADeviceInfo(device int32) (CUDADeviceInfo, error) {
	var i C.kvmem_cuda_device_info
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_cuda_get_device_info(C.int32_t(device), &i, failure)
	})
	if err != nil {
		return CUDADeviceInfo{}, err
	}
	return CUDADeviceInfo{
		Name: C.GoString(&i.name[0]), UUID: *(*UUID)(unsafe.Pointer(&i.uuid)), TotalMemory: uint64(i.total_memory),
		Capabilities: CUDACapabilities(i.capabilities), MinimumGranularity: uint64(i.minimum_granularity),
		RecommendedGranularity: uint64(i.recommended_granularity), CanAccess: uint64(i.can_access),
		KeptObjects: uint64(i.kept_objects), KeptBytes: uint64(i.kept_bytes),
		ComputeCapabilityMajor: uint32(i.compute_capability_major),
		ComputeCapabilityMinor: uint32(i.compute_capability_minor), Multiprocessors: uint32(i.multiprocessors),
		NUMANode: int32(i.numa_node),
	}, nil
}

// FindCUDADevice returns the ordinal of the GPU with a UUID.
func FindCUDADevice(uuid UUID) (int32, error) {
	var device C.int32_t
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_cuda_find_device((*C.uint8_t)(&uuid[0]), &device, failure)
	})
	return int32(device), err
}

// Stream is a stream of the CUDA driver: a CUstream or cudaStream_t.
type Stream unsafe.Pointer

// SubmitOnStream starts a run as Submit does, on a stream of the caller: after the work that is on the stream now, and before
// work that is put on it later. The stream must not be captured into a graph: see CaptureOnStream.
func (t *Transfer) SubmitOnStream(options *SubmitOptions, stream Stream) error {
	return t.submitWith(options, func(p *C.kvmem_transfer, o *C.kvmem_submit_options, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_submit_on_stream(p, o, (*C.struct_CUstream_st)(stream), failure)
	})
}

// CaptureOnStream makes the prepared blocks a part of the graph that the stream is captured into. They do not move, and Poll,
// Wait and the queue do not report runs of the graph. The transfer, both layouts and their memory must outlive the graph.
func (t *Transfer) CaptureOnStream(stream Stream) error {
	return t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_submit_on_stream((*C.kvmem_transfer)(p), nil, (*C.struct_CUstream_st)(stream), failure)
	})
}

// WaitOnStream makes a stream wait for layers of the last run; 0 for the whole run. The call does not wait. The stream
// continues even if the run fails: call Poll before you use the results.
func (t *Transfer) WaitOnStream(layers uint64, stream Stream) error {
	return t.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_transfer_wait_on_stream((*C.kvmem_transfer)(p), C.uint64_t(layers), (*C.struct_CUstream_st)(stream),
			failure)
	})
}

// IPCHandle is what another process needs to open GPU memory of this process.
type IPCHandle struct {
	// Handle of the driver, which names the whole allocation.
	Handle [64]byte
	// UUID of the GPU.
	UUID UUID
	// Base is the first address of the allocation in this process.
	Base uint64
	// BaseSize of the allocation in bytes.
	BaseSize uint64
	// Offset of the exported address in the allocation, in bytes.
	Offset uint64
	// BufferID is the driver's number of the allocation in this process.
	BufferID uint64
}

// ExportIPC returns the handle with which another process opens GPU memory. The handle does not keep the memory allocated.
func ExportIPC(address uint64) (IPCHandle, error) {
	var h C.kvmem_ipc_handle
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_ipc_export(C.uint64_t(address), &h, failure)
	})
	if err != nil {
		return IPCHandle{}, err
	}
	return IPCHandle{
		Handle: *(*[64]byte)(unsafe.Pointer(&h.handle)), UUID: *(*UUID)(unsafe.Pointer(&h.uuid)), Base: uint64(h.base),
		BaseSize: uint64(h.base_size), Offset: uint64(h.offset), BufferID: uint64(h.buffer_id),
	}, nil
}

// IPCOptions are GPU memory of another process, to be opened with OpenIPC.
type IPCOptions struct {
	Flags  IPCFlags
	Handle [64]byte
	// Offset of the region in the allocation, in bytes.
	Offset uint64
	// Size of the region in bytes, at least 1.
	Size uint64
	// BaseSize and BufferID as exported detect a stale handle; 0: not compared.
	BaseSize, BufferID uint64
	// Device is the GPU that the memory is located on.
	Device int32
	// ForDevice is the GPU that will use the memory; 0 without IPCForDevice.
	ForDevice int32
}

// OpenIPC opens GPU memory of another process as a region.
func OpenIPC(options IPCOptions) (*Region, error) {
	var a arena
	o := C.kvmem_ipc_options{
		struct_size: C.sizeof_kvmem_ipc_options, flags: C.uint64_t(options.Flags), offset: C.uint64_t(options.Offset),
		size: C.uint64_t(options.Size), base_size: C.uint64_t(options.BaseSize), buffer_id: C.uint64_t(options.BufferID),
		device: C.int32_t(options.Device), for_device: C.int32_t(options.ForDevice),
	}
	*(*[64]byte)(unsafe.Pointer(&o.handle)) = options.Handle
	return createRegion(&a, func(region **C.kvmem_region, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_open_ipc(&o, region, failure)
	})
}
