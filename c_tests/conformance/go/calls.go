// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	kvmem "kvmem/bindings/go"
)

var errInProgress = errors.New("in progress")

var calls map[string]func(*step) error

// creates has the calls whose name is of a new object.
var creates = map[string]bool{}

func init() {
	calls = map[string]func(*step) error{
		"status_name": statusName, "region_get_info": regionInfo, "region_get_path": regionPath,
		"region_get_holders": regionHolders, "region_get_residency": regionResidency,
		"region_sync":             func(s *step) error { return region(s).Sync() },
		"region_check_owner":      func(s *step) error { return region(s).CheckOwner() },
		"region_commit":           func(s *step) error { return region(s).Commit(s.in.number("offset"), s.in.number("size")) },
		"region_decommit":         func(s *step) error { return region(s).Decommit(s.in.number("offset"), s.in.number("size")) },
		"layout_get_requirements": requirements, "layout_get_info": layoutInfo, "layout_get_strides": layoutStrides,
		"layout_get_block": layoutBlock, "layout_get_row": layoutRow, "layout_checksum": layoutChecksum,
		"layout_resize": func(s *step) error { return layout(s).Resize(s.in.number("num_blocks")) },
		"queue_poll":    queuePoll, "queue_wait": queueWait,
		"transfer_submit":       func(s *step) error { return transfer(s).Submit() },
		"transfer_cancel":       func(s *step) error { return transfer(s).Cancel() },
		"transfer_submit_pairs": submitPairs, "transfer_poll": poll, "transfer_wait": wait,
		"transfer_get_layers": layers, "transfer_wait_layers": waitLayers, "transfer_get_info": transferInfo,
		"transfer_explain": explain, "share_get_info": shareInfo, "broker_publish": publish, "broker_grant": grant,
		"broker_unpublish": func(s *step) error { return broker(s).Unpublish(s.in.text("name")) },
		"broker_get_info":  brokerInfo,
		"destroy":          destroy, "write": write, "read": read, "fill": fill, "expect": expect, "await_release": awaitRelease,
	}
	for name, call := range map[string]func(*step) error{
		"region_create_system": createSystem, "region_create_disk": createDisk, "region_create_view": createView,
		"region_adopt_host": adoptHost, "layout_build": buildLayout, "layout_get_region": layoutRegion,
		"queue_create": createQueue, "transfer_create": createTransfer, "transfer_start": startTransfer,
		"share_create_region": shareRegion, "share_create_layout": shareLayout, "share_create_received": receivedShare,
		"share_open_region": openRegion, "share_open_layout": openLayout, "broker_create": createBroker,
		"share_fetch": fetch,
	} {
		calls[name], creates[name] = call, true
	}
}

func region(s *step) *kvmem.Region     { return object[*kvmem.Region](s.state, s.name) }
func layout(s *step) *kvmem.Layout     { return object[*kvmem.Layout](s.state, s.name) }
func transfer(s *step) *kvmem.Transfer { return object[*kvmem.Transfer](s.state, s.name) }
func broker(s *step) *kvmem.Broker     { return object[*kvmem.Broker](s.state, s.name) }

func statusName(s *step) error {
	value, err := strconv.ParseInt(s.in.text("value"), 0, 32)
	if err != nil {
		fail("expected a status, found %q", s.in.text("value"))
	}
	s.put("name", strings.TrimPrefix(kvmem.Status(value).Name(), "KVMEM_STATUS_"))
	return nil
}

// ---- regions ----

func system(in *values, key string) kvmem.SystemOptions {
	return kvmem.SystemOptions{Flags: flags[kvmem.SystemFlags](in, key, systemFlags)}
}

func createSystem(s *step) error {
	options := system(s.in, "flags")
	options.Size, options.HugePageSize = s.in.number("size"), s.in.number("huge_page_size")
	options.PrefaultThreads = uint32(s.in.number("prefault_threads"))
	r, err := kvmem.NewSystemRegion(options)
	return create(s, r, err)
}

func disk(s *step, key string) kvmem.DiskOptions {
	return kvmem.DiskOptions{
		Flags: flags[kvmem.DiskFlags](s.in, key, diskFlags), Path: s.state.path(s.in.text("path")),
		Directory: s.state.path(s.in.text("directory")),
	}
}

func createDisk(s *step) error {
	options := disk(s, "flags")
	options.Size = s.in.number("size")
	r, err := kvmem.NewDiskRegion(options)
	return create(s, r, err)
}

func createView(s *step) error {
	parent := object[*kvmem.Region](s.state, s.in.text("region"))
	r, err := parent.View(s.in.number("offset"), s.in.number("size"))
	return create(s, r, err)
}

func adoptHost(s *step) error {
	memory, err := syscall.Mmap(-1, 0, int(s.in.number("size")), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		fail("%v", err)
	}
	released := make(chan struct{})
	s.state.released[s.name] = released
	r, err := kvmem.AdoptHost(memory, flags[kvmem.AdoptFlags](s.in, "flags", adoptFlags), func() {
		_ = syscall.Munmap(memory)
		close(released)
	})
	return create(s, r, err)
}

func regionInfo(s *step) error {
	i, err := region(s).Info()
	s.put("size", i.Size)
	s.put("page_size", i.PageSize)
	s.put("alignment", i.Alignment)
	s.put("tier", wordOf(tiers, i.Tier))
	s.put("origin", wordOf(origins, i.Origin))
	s.put("flags", flagsOf(regionFlags, i.Flags))
	s.put("registration_count", i.RegistrationCount)
	return err
}

func regionPath(s *step) error {
	path, err := region(s).Path()
	s.put("path", path)
	return err
}

func regionHolders(s *step) error {
	h, err := region(s).Holders()
	s.put("references", h.References)
	s.put("views", h.Views)
	s.put("registrations", h.Registrations)
	s.put("shares", h.Shares)
	s.put("importers", h.Importers)
	s.put("handles", h.Handles)
	return err
}

func regionResidency(s *step) error {
	_, err := region(s).Residency()
	return err
}

// ---- layouts ----

func shape(in *values) kvmem.LayoutConfig {
	return kvmem.LayoutConfig{
		NumBlocks: in.number("num_blocks"), NumLayers: in.number("num_layers"), OuterDim: in.number("outer_dim"),
		PageSize: in.number("page_size"), InnerDim: in.number("inner_dim"), DtypeWidth: in.number("dtype_width"),
		Alignment: in.number("alignment"), NumHeads: in.number("num_heads"), Kind: word[kvmem.LayoutKind](in, "kind", kinds),
		BlockDim: word[kvmem.BlockDim](in, "block_dim", blockDims), Order: in.text("order"),
		BlockStride: in.number("block_stride"), LayerStride: in.number("layer_stride"), OuterStride: in.number("outer_stride"),
		TokenStride: in.number("token_stride"), HeadStride: in.number("head_stride"), ElementStride: in.number("element_stride"),
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
	switch memory, _ := s.in.get("memory"); memory {
	case "system":
		options.Memory = systemMemory
	case "disk":
		options.Memory = diskMemory
	case "":
	default:
		fail("no word %q for memory", memory)
	}
	if names, ok := s.in.get("regions"); ok {
		for _, name := range strings.Split(names, ",") {
			options.Regions = append(options.Regions, object[*kvmem.Region](s.state, name))
		}
	}
	l, err := kvmem.NewLayout(options)
	return create(s, l, err)
}

func layoutInfo(s *step) error {
	i, err := layout(s).Info()
	for key, value := range map[string]uint64{
		"num_blocks": i.Config.NumBlocks, "num_layers": i.Config.NumLayers, "outer_dim": i.Config.OuterDim,
		"page_size": i.Config.PageSize, "inner_dim": i.Config.InnerDim, "dtype_width": i.Config.DtypeWidth,
		"alignment": i.Config.Alignment, "num_heads": i.Config.NumHeads, "num_regions": i.NumRegions,
		"block_stride": i.Config.BlockStride, "layer_stride": i.Config.LayerStride, "outer_stride": i.Config.OuterStride,
		"token_stride": i.Config.TokenStride, "head_stride": i.Config.HeadStride, "element_stride": i.Config.ElementStride,
	} {
		s.put(key, value)
	}
	s.put("kind", wordOf(kinds, i.Config.Kind))
	s.put("block_dim", wordOf(blockDims, i.Config.BlockDim))
	s.put("tier", wordOf(tiers, i.Tier))
	s.put("locality", wordOf(localities, i.Locality))
	s.put("memory_type", wordOf(memoryTypes, i.MemoryType))
	s.put("order", i.Config.Order)
	return err
}

func layoutStrides(s *step) error {
	n, err := layout(s).Strides()
	for key, value := range map[string]uint64{
		"num_bases": uint64(len(n.Bases)), "block_stride": n.BlockStride, "layer_stride": n.LayerStride,
		"outer_stride": n.OuterStride, "token_stride": n.TokenStride, "head_stride": n.HeadStride,
		"element_stride": n.ElementStride, "layer_step": n.LayerStep, "outer_step": n.OuterStep, "token_step": n.TokenStep,
		"head_step": n.HeadStep, "size": n.Size, "row_size": n.RowSize,
	} {
		s.put(key, value)
	}
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
		strides, failure := l.Strides()
		if failure != nil {
			return failure
		}
		s.put("offset", b.Address-strides.Bases[0])
		s.put("size", b.Size)
	}
	return err
}

func layoutRegion(s *step) error {
	r, err := object[*kvmem.Layout](s.state, s.in.text("layout")).Region(int(s.in.number("index")))
	return create(s, r, err)
}

func layoutChecksum(s *step) error {
	checksums, err := layout(s).Checksums(s.in.numbers("blocks"))
	var list []string
	for _, checksum := range checksums {
		list = append(list, strconv.FormatUint(uint64(checksum), 10))
	}
	s.put("checksums", strings.Join(list, ","))
	return err
}

// within is a context that ends as a timeout does.
func within(in *values) (context.Context, context.CancelFunc) {
	timeout, ok := in.get("timeout_ns")
	if !ok || timeout == "forever" {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(number(timeout)))
}

// ---- steps that are no function ----

func destroy(s *step) error {
	closing := object[interface{ Close() error }](s.state, s.name)
	delete(s.state.objects, s.name)
	for i, name := range s.state.order {
		if name == s.name {
			s.state.order = append(s.state.order[:i:i], s.state.order[i+1:]...)
			break
		}
	}
	return closing.Close()
}

func awaitRelease(s *step) error {
	released, ok := s.state.released[s.name]
	if !ok {
		fail("no region %q was adopted", s.name)
	}
	<-released
	return nil
}
