// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strconv"
	"strings"
	"time"

	kvmem "kvmem/bindings/go"
)

var layoutCalls = map[string]call{
	"layout_get_requirements": requirements, "layout_get_info": layoutInfo,
	"layout_get_block": layoutBlock, "layout_get_row": layoutRow, "layout_checksum": layoutChecksum,
	"layout_create_epochs": createEpochs,
	"layout_get_accesses":  layoutAccesses, "lease_get_remaining": leaseRemaining,
	"layout_serve": serveLayout,
}

var layoutCreators = map[string]call{
	"layout_build": buildLayout, "layout_combine": combineLayouts, "layout_get_part": layoutPart,
	"layout_get_region": layoutRegion, "lease_create": createLease,
}

func shape(in *values) kvmem.LayoutConfig {
	return kvmem.LayoutConfig{
		NumBlocks: in.number("num_blocks"), NumLayers: in.number("num_layers"), OuterDim: in.number("outer_dim"),
		PageSize: in.number("page_size"), InnerDim: in.number("inner_dim"), DtypeWidth: in.number("dtype_width"),
		Alignment: in.number("alignment"), NumHeads: in.number("num_heads"), Order: in.text("order"),
		BlockStride: in.number("block_stride"), LayerStride: in.number("layer_stride"), OuterStride: in.number("outer_stride"),
		TokenStride: in.number("token_stride"), HeadStride: in.number("head_stride"), ElementStride: in.number("element_stride"),
		Identity: []byte(in.text("identity")),
	}
}

func requirements(s *step) error {
	r, err := shape(s.in).Requirements()
	s.put("num_regions", r.NumRegions)
	s.put("region_size", r.RegionSize)
	s.put("total_size", r.TotalSize)
	s.put("allocation_size", r.AllocationSize)
	return err
}

func buildLayout(s *step) error {
	options := kvmem.LayoutOptions{Config: shape(s.in)}
	systemMemory, diskMemory := system(s.in, "system_flags"), disk(s, "disk_flags")
	device := int32(s.in.number("device"))
	switch word[kvmem.Tier](s.in, "memory", tiers) {
	case kvmem.TierSystem:
		options.Memory = systemMemory
	case kvmem.TierDisk:
		options.Memory = diskMemory
	case kvmem.TierPinned:
		options.Memory = kvmem.PinnedOptions{Device: device}
	case kvmem.TierDevice:
		options.Memory = kvmem.DeviceOptions{Device: device}
	case kvmem.TierElastic:
		options.Memory = kvmem.ElasticOptions{Device: device}
	}
	for _, name := range s.in.list("regions") {
		options.Regions = append(options.Regions, object[*kvmem.Region](s.state, name))
	}
	for _, name := range s.in.list("registrations") {
		options.Registrations = append(options.Registrations, object[*kvmem.Registration](s.state, name))
	}
	if name, ok := s.in.get("agent"); ok {
		options.Agent = object[*kvmem.Agent](s.state, name)
	}
	l, err := kvmem.NewLayout(options)
	return create(s, l, err)
}

func combineLayouts(s *step) error {
	var parts []kvmem.LayoutPart
	for _, item := range s.in.list("parts") {
		name, layout := cut(item)
		parts = append(parts, kvmem.LayoutPart{Name: name, Layout: object[*kvmem.Layout](s.state, layout)})
	}
	l, err := kvmem.CombineLayouts(parts)
	return create(s, l, err)
}

func layoutPart(s *step) error {
	part, err := object[*kvmem.Layout](s.state, s.in.text("layout")).Part(s.in.text("name"))
	return create(s, part, err)
}

func layoutInfo(s *step) error {
	i, err := layout(s).Info()
	for key, value := range map[string]uint64{
		"num_blocks": i.Config.NumBlocks, "num_layers": i.Config.NumLayers, "outer_dim": i.Config.OuterDim,
		"page_size": i.Config.PageSize, "inner_dim": i.Config.InnerDim, "dtype_width": i.Config.DtypeWidth,
		"alignment": i.Config.Alignment, "num_heads": i.Config.NumHeads, "num_regions": i.NumRegions, "num_parts": uint64(len(i.PartNames)),
		"block_stride": i.Config.BlockStride, "layer_stride": i.Config.LayerStride, "outer_stride": i.Config.OuterStride,
		"token_stride": i.Config.TokenStride, "head_stride": i.Config.HeadStride, "element_stride": i.Config.ElementStride,
		"layer_step": i.LayerStep, "outer_step": i.OuterStep, "token_step": i.TokenStep, "head_step": i.HeadStep,
		"piece_size": i.PieceSize, "row_size": i.RowSize,
	} {
		s.put(key, value)
	}
	s.put("tier", wordOf(tiers, i.Tier))
	s.put("locality", wordOf(localities, i.Locality))
	s.put("memory_type", wordOf(memoryTypes, i.MemoryType))
	s.put("order", i.Config.Order)
	s.put("identity", string(i.Config.Identity))
	s.put("agent", i.Agent)
	s.put("part_names", strings.Join(i.PartNames, ","))
	return err
}

func layoutBlock(s *step) error {
	l := layout(s)
	b, err := l.Block(uint32(s.in.number("block")), s.in.number("layer"), s.in.number("outer"))
	return putRange(s, l, b, err)
}

func layoutRow(s *step) error {
	l := layout(s)
	b, err := l.Row(uint32(s.in.number("block")), s.in.number("layer"), s.in.number("outer"), s.in.number("token"),
		s.in.number("head"))
	return putRange(s, l, b, err)
}

func putRange(s *step, l *kvmem.Layout, b kvmem.Block, err error) error {
	if err == nil {
		info, failure := l.Info()
		if failure != nil {
			return failure
		}
		s.put("offset", b.Address-info.Bases[0])
		s.put("size", b.Size)
	}
	return err
}

func layoutRegion(s *step) error {
	r, err := object[*kvmem.Layout](s.state, s.in.text("layout")).Region(int(s.in.number("index")))
	return create(s, r, err)
}

func layoutChecksum(s *step) error {
	ctx, cancel := within(s.in)
	defer cancel()
	checksums, err := layout(s).Checksums(ctx, s.in.numbers("blocks"))
	s.put("checksums", joined(checksums))
	return err
}

func createEpochs(s *step) error {
	var table *kvmem.Region
	if name, ok := s.in.get("table"); ok {
		table = object[*kvmem.Region](s.state, name)
	}
	return layout(s).CreateEpochs(table)
}

func layoutAccesses(s *step) error {
	found, err := layout(s).Accesses(s.in.numbers("blocks"))
	s.put("count", strconv.Itoa(len(found)))
	return err
}

func serveLayout(s *step) error {
	return layout(s).Serve(kvmem.ServeOptions{
		StagingSize: s.in.number("staging_size"), MaxLease: time.Duration(s.in.number("max_lease_ns")),
	})
}

func createLease(s *step) error {
	lease, err := object[*kvmem.Layout](s.state, s.in.text("layout")).Lease(s.in.numbers("blocks"), kvmem.LeaseOptions{
		Flags: flags[kvmem.LeaseFlags](s.in, "flags", leaseFlags), Duration: time.Duration(s.in.number("duration_ns")),
		Timeout: time.Duration(s.in.number("timeout_ns")),
	})
	return create(s, lease, err)
}

func leaseRemaining(s *step) error {
	remaining, err := object[*kvmem.Lease](s.state, s.name).Remaining()
	if remaining == kvmem.NoEnd {
		s.put("remaining_ns", uint64(math.MaxUint64))
	} else {
		s.put("remaining_ns", uint64(remaining))
	}
	return err
}
