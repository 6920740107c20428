// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"
)

// StoreValue is a part of the identity of a store, such as "model", with any bytes.
type StoreValue struct {
	Name  string
	Value []byte
}

// StoreOptions are options of OpenStore.
type StoreOptions struct {
	// Path of the folder. It is created, but not its parents.
	Path string
	// Config is the shape of the blocks. NumBlocks is the number of slots; 0 for that of an existing store, or for as many as
	// MaxSize has space for.
	Config LayoutConfig
	// Identity says what the blocks contain. A store of another one is not opened.
	Identity []StoreValue
	// MaxSize in bytes of all slots of a new store, if NumBlocks is 0.
	MaxSize    uint64
	Durability Durability
	Eviction   Eviction
	// Flags: DiskOpenExisting | DiskReadOnly opens it for reading, also while a process writes it.
	Flags DiskFlags
	// Interval after which blocks become durable, with DurabilityRelaxed, or after which a reader knows what was stored; 0 for
	// one second.
	Interval time.Duration
}

func (s *StoreOptions) c(a *arena) *C.kvmem_store_options {
	o := newOptions[C.kvmem_store_options](a)
	o.path = a.text(s.Path)
	o.config = s.Config.c(a)
	o.num_values = C.size_t(len(s.Identity))
	if len(s.Identity) > 0 {
		size := uintptr(len(s.Identity)) * C.sizeof_kvmem_store_value
		o.identity = (*C.kvmem_store_value)(a.allocate(size))
		values := unsafe.Slice(o.identity, len(s.Identity))
		for i, value := range s.Identity {
			values[i].name = a.text(value.Name)
			values[i].value = a.bytes(append([]byte{}, value.Value...))
			values[i].value_size = C.size_t(len(value.Value))
		}
	}
	o.max_size = C.uint64_t(s.MaxSize)
	o.durability = C.uint32_t(s.Durability)
	o.eviction = C.uint32_t(s.Eviction)
	o.flags = C.uint64_t(s.Flags)
	o.interval_ns = nanoseconds(s.Interval)
	return o
}

// StoreNamespaceOptions are options of Store.OpenNamespace.
type StoreNamespaceOptions struct {
	// Name of 1 to 128 bytes without control characters, such as the id of a tenant. It is in the files of the store, in clear.
	Name string
	// Quota in bytes of slots; 0 for that of an existing namespace.
	Quota uint64
	// Key of 32 random bytes, by which blocks and keys are encrypted; nil for a namespace that is not encrypted.
	Key []byte
}

func (s *StoreNamespaceOptions) c(a *arena) *C.kvmem_store_namespace_options {
	o := newOptions[C.kvmem_store_namespace_options](a)
	o.name = a.text(s.Name)
	o.quota = C.uint64_t(s.Quota)
	o.key = a.bytes(s.Key)
	o.key_size = C.size_t(len(s.Key))
	return o
}

// StoreBlocks are blocks of a layout, and their keys in a store.
type StoreBlocks struct {
	// Keys of one size, 16 to 64 bytes, in the order of the sequence. Each has the tokens of a slot.
	Keys [][]byte
	// Blocks that have the tokens of the keys: one for each key, if PageSize of the layout is that of the store.
	Blocks []uint32
	// Parent is the key of the block before the first one, for a put; nil if that begins a sequence.
	Parent []byte
	// Flags of a put.
	Flags StoreFlags
	// RunTimeout after which the run ends with ErrTimedOut; 0 for no limit.
	RunTimeout time.Duration
	// UserData is returned in the completion.
	UserData uint64
}

// c converts the blocks, for the transfer of this number.
func (s *StoreBlocks) c(a *arena, number uint64) (*C.kvmem_store_blocks, error) {
	joined, size, err := joinKeys(s.Keys)
	if err != nil {
		return nil, err
	}
	if s.Parent != nil && len(s.Parent) != size { // the library would read past its end
		return nil, invalid("Parent must have as many bytes as the keys")
	}
	o := newOptions[C.kvmem_store_blocks](a)
	o.keys = a.bytes(joined)
	o.key_size = C.size_t(size)
	o.num_keys = C.size_t(len(s.Keys))
	o.blocks = a.words(s.Blocks)
	o.num_blocks = C.size_t(len(s.Blocks))
	o.parent = a.bytes(s.Parent)
	o.flags = C.uint64_t(s.Flags)
	o.user_data = C.uint64_t(number)
	o.run_timeout_ns = nanoseconds(s.RunTimeout)
	return o, a.check()
}

// joinKeys returns keys one after the other, and the size of one.
func joinKeys(keys [][]byte) ([]byte, int, error) {
	if len(keys) == 0 {
		return nil, 0, invalid("Keys is empty; give at least one key")
	}
	size := len(keys[0])
	joined := make([]byte, 0, size*len(keys))
	for _, key := range keys {
		if len(key) != size {
			return nil, 0, invalid("the keys of one call must have one size")
		}
		joined = append(joined, key...)
	}
	return joined, size, nil
}
