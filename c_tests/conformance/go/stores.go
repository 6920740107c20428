// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	kvmem "kvmem/bindings/go"
)

var storeCalls = map[string]call{
	"store_put": storePut, "store_get": storeGet, "store_contains": storeContains, "store_remove": storeRemove,
	"store_pin": storePin, "store_unpin": storeUnpin, "store_list": storeList, "store_get_info": storeInfo,
	"store_flush": storeFlush, "store_verify": storeVerify, "store_remove_namespace": storeRemoveNamespace,
}

var storeCreators = map[string]call{"store_open": openStore, "store_open_namespace": openNamespace}

func store(s *step) *kvmem.Store { return object[*kvmem.Store](s.state, s.name) }

func openStore(s *step) error {
	options := kvmem.StoreOptions{
		Path: s.state.path(s.in.text("path")), Config: shape(s.in), MaxSize: s.in.number("max_size"),
		Durability: word[kvmem.Durability](s.in, "durability", durabilities),
		Eviction:   word[kvmem.Eviction](s.in, "eviction", evictions),
		Flags:      flags[kvmem.DiskFlags](s.in, "flags", diskFlags),
	}
	for _, pair := range s.in.list("values") {
		name, value := cut(pair)
		options.Identity = append(options.Identity, kvmem.StoreValue{Name: name, Value: []byte(value)})
	}
	opened, err := kvmem.OpenStore(context.Background(), options)
	return create(s, opened, err)
}

func openNamespace(s *step) error {
	options := kvmem.StoreNamespaceOptions{Name: s.in.text("name"), Quota: s.in.number("quota")}
	if _, ok := s.in.get("key"); ok {
		options.Key = keyOf(uint32(s.in.number("key")))
	}
	opened, err := object[*kvmem.Store](s.state, s.in.text("store")).OpenNamespace(context.Background(), options)
	return create(s, opened, err)
}

func storeRemoveNamespace(s *step) error {
	count, err := store(s).RemoveNamespace(context.Background(), s.in.text("name"))
	s.put("count", count)
	return err
}

func keyOf(number uint32) []byte { return bytes.Repeat([]byte{byte(number)}, 32) }

func keysOf(s *step) (keys [][]byte) {
	for _, number := range s.in.numbers("keys") {
		keys = append(keys, keyOf(number))
	}
	return keys
}

func storePut(s *step) error { return move(s, store(s).Put) }
func storeGet(s *step) error { return move(s, store(s).Get) }

func move(s *step, start func(*kvmem.Layout, kvmem.StoreBlocks, kvmem.TransferOptions) (kvmem.StoreRun, error)) error {
	blocks := kvmem.StoreBlocks{
		Keys: keysOf(s), Blocks: s.in.numbers("blocks"), Flags: flags[kvmem.StoreFlags](s.in, "store_flags", storeFlags),
	}
	if _, ok := s.in.get("parent"); ok {
		blocks.Parent = keyOf(uint32(s.in.number("parent")))
	}
	run, err := start(object[*kvmem.Layout](s.state, s.in.text("layout")), blocks, selection(s.in))
	if err != nil {
		return err
	}
	moved, err := run.Wait(context.Background())
	s.put("num_moved", moved)
	return err
}

func storeContains(s *step) error {
	found, err := store(s).Contains(keysOf(s))
	var list []string
	for _, isStored := range found {
		list = append(list, map[bool]string{false: "0", true: "1"}[isStored])
	}
	s.put("found", strings.Join(list, ","))
	return err
}

func storeRemove(s *step) error {
	count, err := store(s).Remove(context.Background(), keysOf(s))
	s.put("count", count)
	return err
}

func storePin(s *step) error {
	count, err := store(s).Pin(keysOf(s))
	s.put("count", count)
	return err
}

func storeUnpin(s *step) error {
	count, err := store(s).Unpin(keysOf(s))
	s.put("count", count)
	return err
}

func storeList(s *step) error {
	entries, err := store(s).List(s.in.number("first_slot"), int(s.in.number("capacity")))
	var list []string
	for _, entry := range entries {
		parent, pinned := "", 0
		if entry.Parent != nil {
			parent = fmt.Sprint(entry.Parent[0])
		}
		if entry.IsPinned {
			pinned = 1
		}
		list = append(list, fmt.Sprintf("%d:%s:%d", entry.Key[0], parent, pinned))
	}
	s.put("entries", strings.Join(list, ","))
	return err
}

func storeInfo(s *step) error {
	i, err := store(s).Info()
	s.put("num_slots", i.NumSlots)
	s.put("num_stored", i.NumStored)
	s.put("num_retired", i.NumRetired)
	s.put("num_hits", i.NumHits)
	s.put("num_misses", i.NumMisses)
	s.put("num_evicted", i.NumEvicted)
	s.put("num_damaged", i.NumDamaged)
	s.put("durability", wordOf(durabilities, i.Durability))
	return err
}

func storeFlush(s *step) error {
	ctx, cancel := within(s.in)
	defer cancel()
	return store(s).Flush(ctx)
}

func storeVerify(s *step) error {
	ctx, cancel := within(s.in)
	defer cancel()
	_, err := store(s).Verify(ctx)
	return err
}
