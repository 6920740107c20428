// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"unsafe"
)

// Store has blocks under keys in a folder, open for writing or for reading, or in a namespace of a store. They survive the process
// and a loss of power. Runs of puts and gets keep the store open, also after Close.
type Store struct{ object }

// StoreInfo are properties of a store, and what happened since it was opened.
type StoreInfo struct {
	NumSlots, NumStored uint64
	// NumRetired slots are not used again, because their bytes were damaged.
	NumRetired uint64
	// SlotSize in bytes.
	SlotSize                                   uint64
	NumHits, NumMisses, NumEvicted, NumDamaged uint64
	Durability                                 Durability
}

// StoreEntry is a block in a store.
type StoreEntry struct {
	Key []byte
	// Parent is nil if the block has none.
	Parent   []byte
	Checksum uint32
	IsPinned bool
	Slot     uint64
}

// StoreRun is what Put or Get has started.
type StoreRun struct {
	// Transfer has one run, which is in flight; nil if nothing is to be moved.
	Transfer *Transfer
	// NumMoved keys. For Get, the key with this index is the first that is missing.
	NumMoved int
}

// Wait waits for the end, closes the transfer, and returns the number of keys.
func (r StoreRun) Wait(ctx context.Context) (int, error) {
	if r.Transfer == nil {
		return r.NumMoved, nil
	}
	defer r.Transfer.Close()
	return r.NumMoved, r.Transfer.Wait(ctx)
}

// OpenStore opens a store, or creates it.
func OpenStore(ctx context.Context, options StoreOptions) (*Store, error) {
	return outlived(ctx, func(timeout C.uint64_t) (*Store, error) {
		var a arena
		defer a.free()
		o := options.c(&a)
		if err := a.check(); err != nil {
			return nil, err
		}
		var store *C.kvmem_store
		err := try(func(failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_store_open(o, timeout, &store, failure)
		})
		return ownStore(store, err)
	}, func(late *Store) { late.Close() })
}

func ownStore(store *C.kvmem_store, err error) (*Store, error) {
	if err != nil {
		return nil, err
	}
	s := &Store{}
	s.own("store", unsafe.Pointer(store), func(p unsafe.Pointer) { C.kvmem_store_destroy((*C.kvmem_store)(p)) })
	return s, nil
}

// OpenNamespace opens a namespace, or creates it: a store whose calls find its own blocks only. It keeps this store open.
func (s *Store) OpenNamespace(ctx context.Context, options StoreNamespaceOptions) (*Store, error) {
	return outlived(ctx, func(timeout C.uint64_t) (*Store, error) {
		var a arena
		defer a.free()
		o := options.c(&a)
		if err := a.check(); err != nil {
			return nil, err
		}
		var opened *C.kvmem_store
		err := s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_store_open_namespace((*C.kvmem_store)(p), o, timeout, &opened, failure)
		})
		return ownStore(opened, err)
	}, func(late *Store) { late.Close() })
}

// RemoveNamespace removes a namespace, and returns the number of its blocks. If the context is done first, it is removed later.
func (s *Store) RemoveNamespace(ctx context.Context, name string) (uint64, error) {
	return outlived(ctx, func(timeout C.uint64_t) (uint64, error) {
		var a arena
		defer a.free()
		text := a.text(name)
		if err := a.check(); err != nil {
			return 0, err
		}
		var removed C.uint64_t
		err := s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_store_remove_namespace((*C.kvmem_store)(p), text, timeout, &removed, failure)
		})
		return uint64(removed), err
	}, func(uint64) {})
}

// DescribeStore returns what a store is and contains, as text for people. It may be open in a process.
func DescribeStore(path string) (string, error) {
	var a arena
	defer a.free()
	text := a.text(path)
	if err := a.check(); err != nil {
		return "", err
	}
	var b *C.kvmem_blob
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_store_describe(text, &b, failure) })
	if err != nil {
		return "", err
	}
	return string(blob(b)), nil
}

func (s *Store) ref() *object {
	if s == nil {
		return nil
	}
	return &s.object
}

// Close closes the handle.
func (s *Store) Close() error { return s.ref().closeObject() }

type startOfMove func(*C.kvmem_store, *C.kvmem_layout, *C.kvmem_transfer_options, *C.kvmem_store_blocks,
	**C.kvmem_transfer, *C.size_t, **C.kvmem_error) C.kvmem_status

// Put stores blocks of a layout under their keys. Those that are stored are not moved. The ranges of the options have all layers,
// outer slots and heads of the store.
func (s *Store) Put(source *Layout, blocks StoreBlocks, options TransferOptions) (StoreRun, error) {
	return s.move(source, &blocks, &options, func(store *C.kvmem_store, layout *C.kvmem_layout, o *C.kvmem_transfer_options,
		b *C.kvmem_store_blocks, t **C.kvmem_transfer, moved *C.size_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_store_put(store, layout, o, b, t, moved, failure)
	})
}

// Get moves the blocks of the first keys to a layout, up to the first key that is not stored. Each block is compared with its
// checksum: with damaged ones the run ends with ErrCorrupt. Mismatches of the transfer returns their indices, if Wait of the transfer has
// waited: Wait of the StoreRun closes it.
func (s *Store) Get(destination *Layout, blocks StoreBlocks, options TransferOptions) (StoreRun, error) {
	return s.move(destination, &blocks, &options, func(store *C.kvmem_store, layout *C.kvmem_layout, o *C.kvmem_transfer_options,
		b *C.kvmem_store_blocks, t **C.kvmem_transfer, moved *C.size_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_store_get(store, layout, o, b, t, moved, failure)
	})
}

// errNothing ends the start of a run that has nothing to move.
var errNothing = errors.New("nothing is to be moved")

func (s *Store) move(layout *Layout, blocks *StoreBlocks, options *TransferOptions, start startOfMove) (StoreRun, error) {
	if layout == nil {
		return StoreRun{}, invalid("a put and a get need a layout")
	}
	r, reports, err := transferRuns(options)
	if err != nil {
		return StoreRun{}, err
	}
	var u users
	defer u.done()
	store, err := u.pointer(s.ref())
	if err == nil && store == nil {
		_, err = s.ref().use()
	}
	if err != nil {
		return StoreRun{}, err
	}
	memory, err := u.pointer(&layout.object)
	if err != nil {
		return StoreRun{}, err
	}
	queue, err := u.pointer(&r.reader.queue)
	if err != nil {
		return StoreRun{}, err
	}
	if r.number, err = r.reader.add(reports, r.failure); err != nil {
		return StoreRun{}, err
	}
	var a arena
	defer a.free()
	o := options.c(&a, (*C.kvmem_queue)(queue))
	b, err := blocks.c(&a, r.number)
	if err != nil {
		r.reader.remove(r.number)
		return StoreRun{}, err
	}
	r.mu.Lock() // until r.handle is set, which failure uses
	defer r.mu.Unlock()
	var transfer *C.kvmem_transfer
	var moved C.size_t
	err = r.submit(blocks.UserData, func() error {
		err := try(func(failure **C.kvmem_error) C.kvmem_status {
			return start((*C.kvmem_store)(store), (*C.kvmem_layout)(memory), o, b, &transfer, &moved, failure)
		})
		if err == nil && transfer == nil {
			return errNothing
		}
		return err
	})
	if err != nil {
		r.reader.remove(r.number)
		if err == errNothing {
			return StoreRun{NumMoved: int(moved)}, nil
		}
		return StoreRun{}, err
	}
	return StoreRun{ownTransfer(r, transfer, [3]any{layout, s, options.Queue}), int(moved)}, nil
}

// Contains returns for each key whether it is stored. It waits for no file.
func (s *Store) Contains(keys [][]byte) ([]bool, error) {
	found := make([]C.uint8_t, len(keys)+1)
	err := s.withKeys(keys, func(p *C.kvmem_store, k unsafe.Pointer, size, count C.size_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_store_contains(p, k, size, count, &found[0], failure)
	})
	if err != nil {
		return nil, err
	}
	stored := make([]bool, len(keys))
	for i := range stored {
		stored[i] = found[i] != 0
	}
	return stored, nil
}

// Remove removes blocks, and returns how many were stored. If the context is done first, they are removed later.
func (s *Store) Remove(ctx context.Context, keys [][]byte) (uint64, error) {
	return outlived(ctx, func(timeout C.uint64_t) (uint64, error) {
		var removed C.uint64_t
		err := s.withKeys(keys, func(p *C.kvmem_store, k unsafe.Pointer, size, count C.size_t, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_store_remove(p, k, size, count, timeout, &removed, failure)
		})
		return uint64(removed), err
	}, func(uint64) {})
}

// Pin protects blocks from eviction until Unpin or the end of the process. It returns how many are stored.
func (s *Store) Pin(keys [][]byte) (uint64, error) {
	var found C.uint64_t
	err := s.withKeys(keys, func(p *C.kvmem_store, k unsafe.Pointer, size, count C.size_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_store_pin(p, k, size, count, &found, failure)
	})
	return uint64(found), err
}

// Unpin ends the protection of blocks. It returns how many are stored.
func (s *Store) Unpin(keys [][]byte) (uint64, error) {
	var found C.uint64_t
	err := s.withKeys(keys, func(p *C.kvmem_store, k unsafe.Pointer, size, count C.size_t, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_store_unpin(p, k, size, count, &found, failure)
	})
	return uint64(found), err
}

func (s *Store) withKeys(keys [][]byte,
	call func(*C.kvmem_store, unsafe.Pointer, C.size_t, C.size_t, **C.kvmem_error) C.kvmem_status) error {
	joined, size, err := joinKeys(keys)
	if err != nil {
		return err
	}
	var a arena
	defer a.free()
	copied := a.bytes(joined)
	return s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return call((*C.kvmem_store)(p), copied, C.size_t(size), C.size_t(len(keys)), failure)
	})
}

// List returns stored blocks in slots from first on, in the order of their slots, at most count.
func (s *Store) List(first uint64, count int) ([]StoreEntry, error) {
	if count < 1 {
		return nil, invalid("count must be at least 1")
	}
	entries := make([]C.kvmem_store_entry, count)
	var found C.size_t
	err := s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_store_list((*C.kvmem_store)(p), C.uint64_t(first), &entries[0], C.size_t(count), &found, failure)
	})
	if err != nil {
		return nil, err
	}
	listed := make([]StoreEntry, found)
	for i := range listed {
		e := &entries[i]
		listed[i] = StoreEntry{
			Key: C.GoBytes(unsafe.Pointer(&e.key[0]), C.int(e.key_size)), Checksum: uint32(e.checksum),
			IsPinned: e.is_pinned != 0, Slot: uint64(e.slot),
		}
		if e.parent_size > 0 {
			listed[i].Parent = C.GoBytes(unsafe.Pointer(&e.parent[0]), C.int(e.parent_size))
		}
	}
	return listed, nil
}

// Info returns properties, and what happened since the store was opened. It waits for no file.
func (s *Store) Info() (StoreInfo, error) {
	var i C.kvmem_store_info
	err := s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_store_get_info((*C.kvmem_store)(p), &i, failure)
	})
	if err != nil {
		return StoreInfo{}, err
	}
	return StoreInfo{
		NumSlots: uint64(i.num_slots), NumStored: uint64(i.num_stored), NumRetired: uint64(i.num_retired),
		SlotSize: uint64(i.slot_size), NumHits: uint64(i.num_hits), NumMisses: uint64(i.num_misses),
		NumEvicted: uint64(i.num_evicted), NumDamaged: uint64(i.num_damaged), Durability: Durability(i.durability),
	}, nil
}

// Flush makes all blocks durable whose puts have ended. For a reader it reads what was stored since.
func (s *Store) Flush(ctx context.Context) error {
	_, err := outlived(ctx, func(timeout C.uint64_t) (struct{}, error) {
		return struct{}{}, s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_store_flush((*C.kvmem_store)(p), timeout, failure)
		})
	}, func(struct{}) {})
	return err
}

// Verify reads all blocks, and removes those that are damaged. It returns their number. A later call continues where one has ended
// whose context was done.
func (s *Store) Verify(ctx context.Context) (uint64, error) {
	return outlived(ctx, func(timeout C.uint64_t) (uint64, error) {
		var damaged C.uint64_t
		err := s.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_store_verify((*C.kvmem_store)(p), timeout, &damaged, failure)
		})
		return uint64(damaged), err
	}, func(uint64) {})
}
