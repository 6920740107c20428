// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// LayoutConfig is the shape of a KV cache. Kind selects a shape of NVIDIA Dynamo's KVBM, and Order any order of axes: set
// one of the two. NumBlocks, NumLayers, OuterDim, PageSize, InnerDim and DtypeWidth are required.
type LayoutConfig struct {
	// NumBlocks, 1 to 4294967295.
	NumBlocks uint64
	// NumLayers of the model, at least 1.
	NumLayers uint64
	// OuterDim is the number of outer slots per layer: 2 if keys and values are separate, 1 if they are combined (MLA).
	OuterDim uint64
	// PageSize is the number of tokens per block, at least 1.
	PageSize uint64
	// InnerDim is the number of elements per token in one layer and outer slot, such as KV heads × head size.
	InnerDim uint64
	// DtypeWidth in bytes per element: 1, 2, 4 or 8.
	DtypeWidth uint64
	// Alignment of blocks in bytes, a power of two; 0 for 1.
	Alignment uint64
	// NumHeads is the number of KV heads; 0 if unknown. An order in which C does not follow H requires it.
	NumHeads uint64
	// Order is OrderFullyContiguous, OrderLayerSeparate, OrderLayerSeparateOuterFirst, or any other order of the axes from the
	// outermost to the innermost, such as "L/BHNOC". B block, L layer, O outer slot, N token, H head, C elements of one head of
	// one token. Axes before '/' have separate regions.
	Order string
	// Strides in bytes; 0 if tight.
	BlockStride, LayerStride, OuterStride, TokenStride, HeadStride, ElementStride uint64
	// Identity says what the blocks contain, such as the model, its revision and the data type, in any bytes; at most 2048.
	// A transfer between two layouts fails unless both have the same identity or none.
	Identity []byte
}

func (s LayoutConfig) c(a *arena) *C.kvmem_layout_config {
	o := newOptions[C.kvmem_layout_config](a)
	o.num_blocks = C.uint64_t(s.NumBlocks)
	o.num_layers = C.uint64_t(s.NumLayers)
	o.outer_dim = C.uint64_t(s.OuterDim)
	o.page_size = C.uint64_t(s.PageSize)
	o.inner_dim = C.uint64_t(s.InnerDim)
	o.dtype_width = C.uint64_t(s.DtypeWidth)
	o.alignment = C.uint64_t(s.Alignment)
	o.num_heads = C.uint64_t(s.NumHeads)
	o.order = a.string(s.Order)
	o.block_stride = C.uint64_t(s.BlockStride)
	o.layer_stride = C.uint64_t(s.LayerStride)
	o.outer_stride = C.uint64_t(s.OuterStride)
	o.token_stride = C.uint64_t(s.TokenStride)
	o.head_stride = C.uint64_t(s.HeadStride)
	o.element_stride = C.uint64_t(s.ElementStride)
	o.identity = a.bytes(s.Identity)
	o.identity_size = C.size_t(len(s.Identity))
	return o
}

// Requirements are the memory that a shape needs.
type Requirements struct {
	// NumRegions is the product of the sizes of the axes before '/'; 1 if there are none.
	NumRegions uint64
	// RegionSize in bytes of each region.
	RegionSize uint64
	// TotalSize in bytes of all regions.
	TotalSize uint64
	// AllocationSize in bytes of one allocation that contains all regions.
	AllocationSize uint64
}

// Requirements returns the memory that the shape needs. It allocates nothing.
func (s LayoutConfig) Requirements() (Requirements, error) {
	var a arena
	defer a.free()
	config := s.c(&a)
	if err := a.check(); err != nil {
		return Requirements{}, err
	}
	var r C.kvmem_layout_requirements
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_get_requirements(config, &r, failure)
	})
	if err != nil {
		return Requirements{}, err
	}
	return Requirements{
		NumRegions: uint64(r.num_regions), RegionSize: uint64(r.region_size), TotalSize: uint64(r.total_size),
		AllocationSize: uint64(r.allocation_size),
	}, nil
}

// LayoutOptions are options of NewLayout. Set one of Memory, Regions and Registrations.
type LayoutOptions struct {
	Config LayoutConfig
	// Agent makes the layout accessible to peers; nil for access by this process only.
	Agent *Agent
	// Memory to allocate for all regions.
	Memory MemoryOptions
	// Regions of the caller: one, or one per index of the axes that have separate regions, of which the last varies
	// fastest. With an agent, each is registered with it.
	Regions []*Region
	// Registrations, in the order of the regions.
	Registrations []*Registration
}

// Layout is the location of each block of a KV cache. It keeps its regions and registrations alive.
type Layout struct {
	object
	parents any
}

func newLayout(pointer *C.kvmem_layout, parents any) *Layout {
	l := &Layout{parents: parents}
	l.own("layout", unsafe.Pointer(pointer), func(p unsafe.Pointer) { C.kvmem_layout_destroy((*C.kvmem_layout)(p)) })
	return l
}

// NewLayout builds a layout. Everything is checked before anything is allocated or registered, and a failure changes
// nothing.
func NewLayout(options LayoutOptions) (*Layout, error) {
	sources := 0
	for _, set := range []bool{options.Memory != nil, options.Regions != nil, options.Registrations != nil} {
		if set {
			sources++
		}
	}
	if sources != 1 {
		return nil, invalid("set exactly one of Memory, Regions and Registrations of LayoutOptions")
	}
	var a arena
	defer a.free()
	var u users
	defer u.done()
	o := newOptions[C.kvmem_layout_options](&a)
	o.config = options.Config.c(&a)
	agent, err := u.pointer(options.Agent.ref())
	if err != nil {
		return nil, err
	}
	o.agent = (*C.kvmem_agent)(agent)
	var objects []*object
	switch {
	case options.Memory != nil:
		o.source = C.KVMEM_LAYOUT_ALLOCATE
		options.Memory.allocate(o, &a)
	case options.Regions != nil:
		o.source = C.KVMEM_LAYOUT_REGIONS
		for _, region := range options.Regions {
			objects = append(objects, region.ref())
		}
	default:
		o.source = C.KVMEM_LAYOUT_REGISTRATIONS
		for _, registration := range options.Registrations {
			objects = append(objects, registration.ref())
		}
	}
	o.count = C.size_t(len(objects))
	list := a.pointers(len(objects))
	for i, object := range objects {
		if list[i], err = u.pointer(object); err != nil {
			return nil, err
		}
	}
	if len(list) > 0 {
		if options.Regions != nil {
			o.regions = (**C.kvmem_region)(unsafe.Pointer(&list[0]))
		} else {
			o.registrations = (**C.kvmem_registration)(unsafe.Pointer(&list[0]))
		}
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	var layout *C.kvmem_layout
	err = try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_layout_build(o, &layout, failure) })
	if err != nil {
		return nil, err
	}
	return newLayout(layout, []any{options.Agent, options.Regions, options.Registrations}), nil
}

func (l *Layout) ref() *object {
	if l == nil {
		return nil
	}
	return &l.object
}

// Close closes the handle. The layout is destroyed when no handle and no transfer refers to it.
func (l *Layout) Close() error { return l.ref().closeObject() }

// Resize allocates memory for the first blocks of an elastic layout and frees that of the others, in whole extents.
func (l *Layout) Resize(numBlocks uint64) error {
	return l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_resize((*C.kvmem_layout)(p), C.uint64_t(numBlocks), failure)
	})
}

// Checksums computes the CRC32C of blocks. Blocks with the same content have the same checksum, whatever the kind, order,
// alignment or tier of their layouts. Nothing may write to the blocks during the call. It ends at the deadline of the context.
func (l *Layout) Checksums(ctx context.Context, blocks []uint32) ([]uint32, error) {
	compute := func(timeout C.uint64_t) ([]uint32, error) {
		checksums := make([]uint32, len(blocks)+1)
		ids := append([]uint32{}, blocks...)
		ids = append(ids, 0)
		err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_layout_checksum((*C.kvmem_layout)(p), (*C.uint32_t)(&ids[0]), C.size_t(len(blocks)),
				timeout, (*C.uint32_t)(&checksums[0]), failure)
		})
		if err != nil {
			return nil, err
		}
		return checksums[:len(blocks)], nil
	}
	return outlived(ctx, compute, func([]uint32) {})
}

// Region returns one of the regions of the layout, as a new handle.
func (l *Layout) Region(index int) (*Region, error) {
	var region *C.kvmem_region
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_get_region((*C.kvmem_layout)(p), C.size_t(index), &region, failure)
	})
	if err != nil {
		return nil, err
	}
	return newRegion(region, l), nil
}

// Export serializes the layout for a peer, which also needs the metadata of the agent.
func (l *Layout) Export() ([]byte, error) {
	descriptor, err := l.text(func(p *C.kvmem_layout, text **C.kvmem_blob, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_export(p, text, failure)
	})
	if err != nil {
		return nil, err
	}
	return []byte(descriptor), nil
}

// ServeOptions configure Serve.
type ServeOptions struct {
	Flags ServeFlags
	// Size of the staging memory in bytes; 0 for 16 MiB.
	StagingSize uint64
	// Time that the owner waits for a peer that neither reads nor writes, before it ends the session; 0 for 30 s.
	StallTimeout time.Duration
	// Time after which a lease of a peer ends at the latest, unless the peer renews it; 0 for 60 s.
	MaxLease time.Duration
}

// Serve serves transfers of the layout to peers, as long as it exists. Get the metadata of the agent, and export the layout,
// after this call.
func (l *Layout) Serve(options ServeOptions) error {
	c := C.kvmem_serve_options{
		struct_size: C.sizeof_kvmem_serve_options, flags: C.uint64_t(options.Flags),
		staging_size: C.uint64_t(options.StagingSize), stall_timeout_ns: nanoseconds(options.StallTimeout),
		max_lease_ns: nanoseconds(options.MaxLease),
	}
	return l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_serve((*C.kvmem_layout)(p), &c, failure)
	})
}

func (l *Layout) text(call func(*C.kvmem_layout, **C.kvmem_blob, **C.kvmem_error) C.kvmem_status) (string, error) {
	var text *C.kvmem_blob
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return call((*C.kvmem_layout)(p), &text, failure)
	})
	if err != nil {
		return "", err
	}
	return string(blob(text)), nil
}
