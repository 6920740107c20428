// SPDX-License-Identifier: Apache-2.0

package kvmem

/*
#include <kvmem.h>
*/
import "C"

import "unsafe"

// CreateEpochs gives each block an epoch, in a region of host memory, which keeps its contents, or for nil in a new one, as 0.
func (l *Layout) CreateEpochs(table *Region) error {
	var u users
	defer u.done()
	var region unsafe.Pointer
	if table != nil {
		pointer, err := u.pointer(table.ref())
		if err != nil {
			return err
		}
		region = pointer
	}
	return l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_create_epochs((*C.kvmem_layout)(p), (*C.kvmem_region)(region), failure)
	})
}

// RaiseEpochs adds 1 to the epochs of some blocks, and returns the new ones. Each read that expects their epochs before ends with
// ErrStale, unless it has ended.
func (l *Layout) RaiseEpochs(blocks []uint32) ([]uint64, error) {
	return l.epochsBy(blocks, func(p *C.kvmem_layout, ids *C.uint32_t, n C.size_t, out *C.uint64_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_raise_epochs(p, ids, n, out, failure)
	})
}

// Epochs returns the current epochs of some blocks.
func (l *Layout) Epochs(blocks []uint32) ([]uint64, error) {
	return l.epochsBy(blocks, func(p *C.kvmem_layout, ids *C.uint32_t, n C.size_t, out *C.uint64_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_get_epochs(p, ids, n, out, failure)
	})
}

func (l *Layout) epochsBy(
	blocks []uint32,
	get func(*C.kvmem_layout, *C.uint32_t, C.size_t, *C.uint64_t, **C.kvmem_error) C.kvmem_status,
) ([]uint64, error) {
	epochs := make([]uint64, len(blocks)+1)
	ids := append(append([]uint32{}, blocks...), 0)
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return get((*C.kvmem_layout)(p), (*C.uint32_t)(&ids[0]), C.size_t(len(blocks)), (*C.uint64_t)(&epochs[0]), failure)
	})
	if err != nil {
		return nil, err
	}
	return epochs[:len(blocks)], nil
}
