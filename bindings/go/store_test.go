// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	kvmem "kvmem/bindings/go"
)

func storeOptions(path string) kvmem.StoreOptions {
	shape := config()
	shape.NumBlocks = 4
	return kvmem.StoreOptions{
		Path: path, Config: shape,
		Identity: []kvmem.StoreValue{{Name: "model", Value: []byte("llama")}, {Name: "dtype", Value: []byte("bf16")}},
	}
}

func keysOf(numbers ...byte) (keys [][]byte) {
	for _, number := range numbers {
		keys = append(keys, bytes.Repeat([]byte{number}, 32))
	}
	return keys
}

func openStore(t *testing.T, options kvmem.StoreOptions) *kvmem.Store {
	t.Helper()
	store := need(kvmem.OpenStore(patience(t), options))(t)
	t.Cleanup(func() { store.Close() })
	return store
}

func TestStore(t *testing.T) {
	ctx, path := patience(t), filepath.Join(t.TempDir(), "store")
	source, destination := build(t, config()), build(t, config())
	fill(t, source, 1)
	store := openStore(t, storeOptions(path))
	run := need(store.Put(source, kvmem.StoreBlocks{Keys: keysOf(0, 1), Blocks: []uint32{5, 2}}, kvmem.TransferOptions{}))(t)
	if moved := need(run.Wait(ctx))(t); moved != 2 {
		t.Fatal(moved)
	}
	again := need(store.Put(source, kvmem.StoreBlocks{Keys: keysOf(0, 1), Blocks: []uint32{5, 2}}, kvmem.TransferOptions{}))(t)
	if moved := need(again.Wait(ctx))(t); moved != 0 || again.Transfer != nil {
		t.Fatal("a block is stored twice")
	}
	succeeds(t, store.Flush(ctx))
	store.Close()
	reopened := storeOptions(path)
	reopened.Config.NumBlocks = 0
	store = openStore(t, reopened)
	queue := need(kvmem.NewQueue())(t)
	defer queue.Close()
	blocks := kvmem.StoreBlocks{Keys: keysOf(0, 1, 2), Blocks: []uint32{0, 1, 3}, UserData: 77}
	run = need(store.Get(destination, blocks, kvmem.TransferOptions{Queue: queue}))(t)
	if moved := need(run.Wait(ctx))(t); moved != 2 {
		t.Fatal(moved)
	}
	if completion := need(queue.Next(ctx))(t); completion.UserData != 77 || completion.Err != nil {
		t.Fatal(completion)
	}
	sameBlock(t, source, 5, destination, 0)
	sameBlock(t, source, 2, destination, 1)
	if found := need(store.Contains(keysOf(0, 2, 1)))(t); !found[0] || found[1] || !found[2] {
		t.Fatal(found)
	}
	if need(store.Pin(keysOf(1, 2)))(t) != 1 {
		t.Fatal("one of the two is stored")
	}
	entries := need(store.List(0, 8))(t)
	if len(entries) != 2 || !bytes.Equal(entries[0].Key, keysOf(0)[0]) || entries[0].Parent != nil ||
		!bytes.Equal(entries[1].Parent, keysOf(0)[0]) || !entries[1].IsPinned {
		t.Fatal(entries)
	}
	if need(store.Unpin(keysOf(1)))(t) != 1 || need(store.Remove(ctx, keysOf(1, 3)))(t) != 1 {
		t.Fatal("one of them is stored")
	}
	if damaged := need(store.Verify(ctx))(t); damaged != 0 {
		t.Fatal(damaged)
	}
	info := need(store.Info())(t)
	if info.NumSlots != 4 || info.NumStored != 1 || info.NumHits != 2 || info.NumMisses != 1 {
		t.Fatal(info)
	}
	if text := need(kvmem.DescribeStore(path))(t); !strings.Contains(text, "model is 'llama'") {
		t.Fatal(text)
	}
}

func TestStoreOfOtherShapes(t *testing.T) {
	ctx := patience(t)
	store := openStore(t, storeOptions(filepath.Join(t.TempDir(), "store")))
	large := config()
	large.PageSize = 8
	source, destination, expected := build(t, large), build(t, config()), build(t, config())
	fill(t, source, 3)
	run := need(store.Put(source, kvmem.StoreBlocks{Keys: keysOf(0, 1, 2), Blocks: []uint32{4, 1}}, kvmem.TransferOptions{}))(t)
	if moved := need(run.Wait(ctx))(t); moved != 3 {
		t.Fatal(moved)
	}
	run = need(store.Get(destination, kvmem.StoreBlocks{Keys: keysOf(0, 1, 2), Blocks: []uint32{0, 1, 2}}, kvmem.TransferOptions{}))(t)
	need(run.Wait(ctx))(t)
	transfer := need(kvmem.StartTransfer(source, expected, kvmem.TransferOptions{}, kvmem.SubmitOptions{
		SourceTable: &kvmem.BlockTable{Blocks: []uint32{4, 1}}, DestinationTable: &kvmem.BlockTable{Blocks: []uint32{0, 1, 2}}, NumTokens: 12,
	}))(t)
	defer transfer.Close()
	succeeds(t, transfer.Wait(ctx))
	for block := uint32(0); block < 3; block++ {
		sameBlock(t, expected, block, destination, block)
	}
}

func TestStoreMisuse(t *testing.T) {
	ctx, path := patience(t), filepath.Join(t.TempDir(), "store")
	source := build(t, config())
	store := openStore(t, storeOptions(path))
	_, err := kvmem.OpenStore(ctx, storeOptions(path))
	fails(t, err, kvmem.ErrBusy, "this process")
	other := storeOptions(path)
	other.Identity[0].Value = []byte("qwen")
	store.Close()
	_, err = kvmem.OpenStore(ctx, other)
	fails(t, err, kvmem.ErrInvalidArgument, "model is 'llama' in the store and 'qwen' here")
	_, err = store.Contains(keysOf(0))
	fails(t, err, kvmem.ErrInvalidArgument, "the store is closed")
	store = openStore(t, storeOptions(path))
	_, err = store.Contains([][]byte{make([]byte, 15)})
	fails(t, err, kvmem.ErrInvalidArgument, "15 bytes")
	_, err = store.Contains([][]byte{make([]byte, 16), make([]byte, 17)})
	fails(t, err, kvmem.ErrInvalidArgument, "one size")
	_, err = store.Contains(nil)
	fails(t, err, kvmem.ErrInvalidArgument, "Keys is empty")
	_, err = store.Put(source, kvmem.StoreBlocks{Keys: keysOf(0), Blocks: []uint32{0, 1}}, kvmem.TransferOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "num_blocks is 2")
	_, err = store.Put(source, kvmem.StoreBlocks{Keys: keysOf(0), Blocks: []uint32{0}, Parent: []byte{1}}, kvmem.TransferOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "Parent")
	_, err = store.Put(nil, kvmem.StoreBlocks{Keys: keysOf(0), Blocks: []uint32{0}}, kvmem.TransferOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "layout")
	_, err = (*kvmem.Store)(nil).Put(source, kvmem.StoreBlocks{Keys: keysOf(0), Blocks: []uint32{0}}, kvmem.TransferOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "nil")
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	fails(t, store.Flush(cancelled), kvmem.ErrCancelled, "not made")
}
