// SPDX-License-Identifier: Apache-2.0

// Many requests report to one queue. Errors have a status and a cause.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	kvmem "kvmem/bindings/go"
)

const requests = 8

// offload moves the block of each request to a temporary file, all at the same time.
func offload(ctx context.Context) error {
	shape := kvmem.LayoutConfig{
		NumBlocks: requests, NumLayers: 4, OuterDim: 2, PageSize: 16, InnerDim: 1024, DtypeWidth: 2,
		Order: kvmem.OrderFullyContiguous,
	}
	cache, err := kvmem.NewLayout(kvmem.LayoutOptions{Config: shape, Memory: kvmem.SystemOptions{}})
	if err != nil {
		return err
	}
	defer cache.Close()
	store, err := kvmem.NewLayout(kvmem.LayoutOptions{Config: shape, Memory: kvmem.DiskOptions{}})
	if err != nil {
		return err
	}
	defer store.Close()
	queue, err := kvmem.NewQueue()
	if err != nil {
		return err
	}
	defer queue.Close()
	for request := uint32(0); request < requests; request++ {
		transfer, err := kvmem.StartTransfer(cache, store, kvmem.TransferOptions{Queue: queue}, kvmem.SubmitOptions{
			Pairs: []kvmem.BlockPair{{Source: request, Destination: request}}, UserData: uint64(request),
		})
		if err != nil {
			return err
		}
		defer transfer.Close()
	}
	for i := 0; i < requests; i++ {
		completion, err := queue.Next(ctx)
		if err != nil {
			return err
		}
		if completion.Err != nil {
			return fmt.Errorf("request %d: %w", completion.UserData, completion.Err)
		}
	}
	return nil
}

func main() {
	if err := offload(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("all requests are offloaded")

	_, err := kvmem.NewDiskRegion(kvmem.DiskOptions{Path: "/nowhere/blocks", Size: 1 << 20})
	if errors.Is(err, kvmem.ErrNotFound) && errors.Is(err, syscall.ENOENT) {
		fmt.Println(err)
	}
}
