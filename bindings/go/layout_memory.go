// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// Block is a range of contiguous bytes: of one block in one layer and outer slot, or of one head of one token in it.
type Block struct {
	// Address of the first byte, in the process that the memory belongs to, or an offset in the file.
	Address uint64
	// Size in bytes.
	Size uint64
}

// Block returns the range of one block in one layer and outer slot. It fails with ErrUnsupported if the bytes are not
// contiguous: use Row or Strides.
func (l *Layout) Block(block uint32, layer, outer uint64) (Block, error) {
	var b C.kvmem_block
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_get_block((*C.kvmem_layout)(p), C.uint32_t(block), C.uint64_t(layer), C.uint64_t(outer), &b,
			failure)
	})
	return Block{Address: uint64(b.address), Size: uint64(b.size)}, err
}

// Row returns the range of one head of one token of a block. Every layout has it, whatever its order.
func (l *Layout) Row(block uint32, layer, outer, token, head uint64) (Block, error) {
	var b C.kvmem_block
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_get_row((*C.kvmem_layout)(p), C.uint32_t(block), C.uint64_t(layer), C.uint64_t(outer),
			C.uint64_t(token), C.uint64_t(head), &b, failure)
	})
	return Block{Address: uint64(b.address), Size: uint64(b.size)}, err
}

// Bytes returns the memory of one block in one layer and outer slot, if it is host memory of this process or mapped here.
// The slice is valid until the layout, and all objects that use its memory, are closed.
func (l *Layout) Bytes(block uint32, layer, outer uint64) ([]byte, error) {
	if err := l.inHostMemory(); err != nil {
		return nil, err
	}
	b, err := l.Block(block, layer, outer)
	if err != nil {
		return nil, err
	}
	return memory(b.Address, b.Size), nil
}

// RowBytes returns the memory of one head of one token of a block, as Bytes does for a block.
func (l *Layout) RowBytes(block uint32, layer, outer, token, head uint64) ([]byte, error) {
	if err := l.inHostMemory(); err != nil {
		return nil, err
	}
	b, err := l.Row(block, layer, outer, token, head)
	if err != nil {
		return nil, err
	}
	return memory(b.Address, b.Size), nil
}

func (l *Layout) inHostMemory() error {
	info, err := l.Info()
	if err != nil {
		return err
	}
	if (info.Tier != TierSystem && info.Tier != TierPinned) || info.Locality == LocalityRemote {
		return &Error{Status: ErrUnsupported, Message: "the layout is not in host memory: only transfers access it"}
	}
	return nil
}

// LayoutInfo has the properties of a layout.
type LayoutInfo struct {
	// Config with the defaults filled in. Kind is a kind if the order and strides give the same addresses.
	Config LayoutConfig
	// DeviceID of the first region in NIXL: 0 for host memory, the ordinal of a GPU, the fd of a file.
	DeviceID uint64
	// NumRegions of the layout.
	NumRegions uint64
	Tier       Tier
	Locality   Locality
	MemoryType MemoryType
	// PartNames of the parts that the layout was combined from, in their order.
	PartNames []string
	// Agent that the layout was built with, or the peer; "" for none.
	Agent string
	// Bases are the starts of the regions. An element is at Bases[layer·LayerStep + outer·OuterStep + token·TokenStep +
	// head·HeadStep] + block·BlockStride + layer·LayerStride + outer·OuterStride + token·TokenStride + head·HeadStride +
	// element·ElementStride; the strides are in Config. A layout with parts has none of these numbers.
	Bases []uint64
	// Steps in bases; 0 for axes that share regions.
	LayerStep, OuterStep, TokenStep, HeadStep uint64
	// PieceSize in bytes of one block in one layer and outer slot, if they are contiguous; otherwise 0.
	PieceSize uint64
	// RowSize is the number of contiguous bytes of one head of one token.
	RowSize uint64
}

// Info returns the properties of the layout.
func (l *Layout) Info() (LayoutInfo, error) {
	var i C.kvmem_layout_info
	var info LayoutInfo
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		status := C.kvmem_layout_get_info((*C.kvmem_layout)(p), &i, failure)
		if status == C.KVMEM_STATUS_OK {
			info.copyMemory(&i)
		}
		return status
	})
	if err != nil {
		return LayoutInfo{}, err
	}
	info.Config = LayoutConfig{
		NumBlocks: uint64(i.num_blocks), NumLayers: uint64(i.num_layers), OuterDim: uint64(i.outer_dim),
		PageSize: uint64(i.page_size), InnerDim: uint64(i.inner_dim), DtypeWidth: uint64(i.dtype_width),
		Alignment: uint64(i.alignment), NumHeads: uint64(i.num_heads), Order: C.GoString(&i.order[0]),
		BlockStride: uint64(i.block_stride), LayerStride: uint64(i.layer_stride), OuterStride: uint64(i.outer_stride),
		TokenStride: uint64(i.token_stride), HeadStride: uint64(i.head_stride), ElementStride: uint64(i.element_stride),
		Identity: info.Config.Identity,
	}
	info.DeviceID, info.NumRegions = uint64(i.device_id), uint64(i.num_regions)
	info.Tier, info.Locality, info.MemoryType = Tier(i.tier), Locality(i.locality), MemoryType(i.memory_type)
	info.LayerStep, info.OuterStep = uint64(i.layer_step), uint64(i.outer_step)
	info.TokenStep, info.HeadStep = uint64(i.token_step), uint64(i.head_step)
	info.PieceSize, info.RowSize = uint64(i.piece_size), uint64(i.row_size)
	return info, nil
}

// copyMemory copies what the info points to, while the layout exists.
func (info *LayoutInfo) copyMemory(i *C.kvmem_layout_info) {
	if i.identity != nil {
		info.Config.Identity = C.GoBytes(i.identity, C.int(i.identity_size))
	}
	if i.agent != nil {
		info.Agent = C.GoString(i.agent)
	}
	if i.bases != nil {
		info.Bases = append(info.Bases, unsafe.Slice((*uint64)(unsafe.Pointer(i.bases)), uint64(i.num_regions))...)
	}
	if i.part_names != nil {
		for _, name := range unsafe.Slice(i.part_names, uint64(i.num_parts)) {
			info.PartNames = append(info.PartNames, C.GoString(name))
		}
	}
}
