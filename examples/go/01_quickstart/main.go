// SPDX-License-Identifier: Apache-2.0

// Two KV caches in host memory, laid out differently; a block moves from the first to the second.
package main

import (
	"context"
	"fmt"
	"log"

	kvmem "kvmem/bindings/go"
)

func build(order string) *kvmem.Layout {
	layout, err := kvmem.NewLayout(kvmem.LayoutOptions{
		Config: kvmem.LayoutConfig{
			NumBlocks: 64, NumLayers: 32,
			OuterDim:   2,       // keys and values
			PageSize:   16,      // tokens
			InnerDim:   8 * 128, // heads x dim
			DtypeWidth: 2, Order: order,
		},
		Memory: kvmem.SystemOptions{},
	})
	if err != nil {
		log.Fatal(err)
	}
	return layout
}

func main() {
	prefill, decode := build(kvmem.OrderFullyContiguous), build(kvmem.OrderLayerSeparate)
	defer prefill.Close()
	defer decode.Close()
	keys, err := prefill.Bytes(7, 31, 0) // block 7, layer 31, keys
	if err != nil {
		log.Fatal(err)
	}
	copy(keys, "the keys of block 7")

	transfer, err := kvmem.StartTransfer(prefill, decode, kvmem.TransferOptions{}, kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 7, Destination: 42}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer transfer.Close()
	if err := transfer.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}
	moved, err := decode.Bytes(42, 31, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("block 42 has %s\n", moved[:19])
}
