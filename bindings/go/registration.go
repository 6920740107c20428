// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// Registration is a region that is registered with an agent. It keeps both alive. The region is deregistered before its
// memory is freed.
type Registration struct {
	object
	parents any
}

// Register registers the region with an agent: with all its backends that accept the type of the memory.
func (r *Region) Register(agent *Agent) (*Registration, error) {
	if agent == nil {
		return nil, invalid("the agent to register with is nil")
	}
	var u users
	defer u.done()
	with, err := u.pointer(&agent.object)
	if err != nil {
		return nil, err
	}
	var registration *C.kvmem_registration
	err = r.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_region_register((*C.kvmem_region)(p), (*C.kvmem_agent)(with), &registration, failure)
	})
	if err != nil {
		return nil, err
	}
	g := &Registration{parents: []any{r, agent}}
	g.own("registration", unsafe.Pointer(registration), func(p unsafe.Pointer) {
		C.kvmem_registration_destroy((*C.kvmem_registration)(p))
	})
	return g, nil
}

func (g *Registration) ref() *object {
	if g == nil {
		return nil
	}
	return &g.object
}

// Close closes the handle. The region is deregistered when no layout or transfer uses the registration.
func (g *Registration) Close() error { return g.ref().closeObject() }

// Deregister deregisters the region, and reports whether that failed. It fails with ErrBusy if layouts or transfers use
// the registration.
func (g *Registration) Deregister() error {
	return g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_registration_deregister((*C.kvmem_registration)(p), failure)
	})
}

// RegistrationInfo has the properties of a registration, as NIXL knows them.
type RegistrationInfo struct {
	// Address of the first byte, or its offset in the file.
	Address uint64
	// Size in bytes.
	Size uint64
	// DeviceID is 0 for host memory, the ordinal of a GPU, the file descriptor of a file.
	DeviceID   uint64
	MemoryType MemoryType
	// Registered until Deregister.
	Registered bool
}

// Info returns the properties of the registration.
func (g *Registration) Info() (RegistrationInfo, error) {
	var i C.kvmem_registration_info
	err := g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_registration_get_info((*C.kvmem_registration)(p), &i, failure)
	})
	if err != nil {
		return RegistrationInfo{}, err
	}
	return RegistrationInfo{
		Address: uint64(i.address), Size: uint64(i.size), DeviceID: uint64(i.device_id),
		MemoryType: MemoryType(i.memory_type), Registered: i.registered != 0,
	}, nil
}
