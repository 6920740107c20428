// SPDX-License-Identifier: Apache-2.0

package kvmem

/*
#include <kvmem.h>
*/
import "C"

import (
	"time"
	"unsafe"
)

// BlockAccess is an access to a block that may be in progress.
type BlockAccess struct {
	Block    uint32
	Accessor Accessor
	// Reads and Writes: the block may be read, written.
	Reads, Writes bool
	// Remaining is the time until a lease ends, NoEnd if it ends when it is closed; 0 for others.
	Remaining time.Duration
	// PID is that of a peer or of the holder of a lease, as it says; 0 for a run of this process.
	PID uint32
	// Agent is that of a peer, or of a peer's lease.
	Agent string
}

// Accesses returns which of some blocks may still be read or written, and by whom; none if it is empty.
func (l *Layout) Accesses(blocks []uint32) ([]BlockAccess, error) {
	ids := append(append([]uint32{}, blocks...), 0)
	list, err := found(func(p *C.kvmem_block_access, n int, count *C.size_t) error {
		return l.ref().call(func(h unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_layout_get_accesses(
				(*C.kvmem_layout)(h), (*C.uint32_t)(&ids[0]), C.size_t(len(blocks)), p, C.size_t(n), count, failure)
		})
	})
	if err != nil {
		return nil, err
	}
	accesses := make([]BlockAccess, len(list))
	for i := range accesses {
		a := &list[i]
		accesses[i] = BlockAccess{
			Block: uint32(a.block), Accessor: Accessor(a.accessor), Reads: a.reads != 0, Writes: a.writes != 0,
			Remaining: remaining(a.remaining_ns), PID: uint32(a.pid), Agent: C.GoString(&a.agent[0]),
		}
	}
	return accesses, nil
}
