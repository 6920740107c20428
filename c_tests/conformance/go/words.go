// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sort"
	"strings"

	kvmem "kvmem/bindings/go"
)

type words = map[string]uint64

var (
	systemFlags = words{
		"transparent_huge_pages": uint64(kvmem.SystemTransparentHugePages),
		"huge_pages_required":    uint64(kvmem.SystemHugePagesRequired),
		"numa_bind":              uint64(kvmem.SystemNUMABind), "shareable": uint64(kvmem.SystemShareable),
		"no_huge_pages": uint64(kvmem.SystemNoHugePages), "write_sealed": uint64(kvmem.SystemWriteSealed),
	}
	pinnedFlags = words{
		"no_huge_pages": uint64(kvmem.PinnedNoHugePages), "numa_bind": uint64(kvmem.PinnedNUMABind),
		"shareable": uint64(kvmem.PinnedShareable), "write_sealed": uint64(kvmem.PinnedWriteSealed),
	}
	diskFlags = words{
		"buffered": uint64(kvmem.DiskBuffered), "direct_required": uint64(kvmem.DiskDirectRequired),
		"open_existing": uint64(kvmem.DiskOpenExisting), "open_or_create": uint64(kvmem.DiskOpenOrCreate),
		"read_only": uint64(kvmem.DiskReadOnly), "no_lock": uint64(kvmem.DiskNoLock),
	}
	adoptFlags  = words{"read_only": uint64(kvmem.AdoptReadOnly), "keep_seals": uint64(kvmem.AdoptKeepSeals)}
	regionFlags = words{
		"direct_io": uint64(kvmem.RegionDirectIO), "preallocated": uint64(kvmem.RegionPreallocated),
		"temporary": uint64(kvmem.RegionTemporary), "huge_page_fallback": uint64(kvmem.RegionHugePageFallback),
		"shareable": uint64(kvmem.RegionShareable), "read_only": uint64(kvmem.RegionReadOnly),
	}
	tiers = words{
		"system": uint64(kvmem.TierSystem), "disk": uint64(kvmem.TierDisk), "pinned": uint64(kvmem.TierPinned),
		"device": uint64(kvmem.TierDevice), "elastic": uint64(kvmem.TierElastic), "object": uint64(kvmem.TierObject),
		"block": uint64(kvmem.TierBlock),
	}
	origins = words{
		"allocated": uint64(kvmem.OriginAllocated), "adopted": uint64(kvmem.OriginAdopted),
		"view": uint64(kvmem.OriginView), "imported": uint64(kvmem.OriginImported),
	}
	memoryTypes = words{"dram": uint64(kvmem.MemoryDRAM), "vram": uint64(kvmem.MemoryVRAM), "file": uint64(kvmem.MemoryFile)}
	kinds       = words{
		"fully_contiguous": uint64(kvmem.LayoutFullyContiguous), "layer_separate": uint64(kvmem.LayoutLayerSeparate),
		"ordered": uint64(kvmem.LayoutOrdered),
	}
	blockDims  = words{"block_dim_first": uint64(kvmem.BlockDimFirst), "block_dim_second": uint64(kvmem.BlockDimSecond)}
	localities = words{
		"local": uint64(kvmem.LocalityLocal), "registered": uint64(kvmem.LocalityRegistered),
		"remote": uint64(kvmem.LocalityRemote), "mapped": uint64(kvmem.LocalityMapped),
	}
	transferFlags = words{
		"zero_copy": uint64(kvmem.TransferZeroCopy), "no_host_bounce": uint64(kvmem.TransferNoHostBounce),
		"by_layer": uint64(kvmem.TransferByLayer), "verify": uint64(kvmem.TransferVerify),
	}
	paths = words{
		"memcpy": uint64(kvmem.PathMemcpy), "nixl_read": uint64(kvmem.PathNIXLRead), "nixl_write": uint64(kvmem.PathNIXLWrite),
		"nixl_file_read": uint64(kvmem.PathNIXLFileRead), "nixl_file_write": uint64(kvmem.PathNIXLFileWrite),
		"cuda_copy": uint64(kvmem.PathCUDACopy), "cuda_batch": uint64(kvmem.PathCUDABatch), "cuda_2d": uint64(kvmem.PathCUDA2d),
		"cuda_kernel": uint64(kvmem.PathCUDAKernel), "cuda_staged": uint64(kvmem.PathCUDAStaged),
		"uring": uint64(kvmem.PathURING), "pread": uint64(kvmem.PathPread), "uring_staged": uint64(kvmem.PathURINGStaged),
		"pread_staged": uint64(kvmem.PathPreadStaged), "nixl_read_staged": uint64(kvmem.PathNIXLReadStaged),
		"nixl_write_staged": uint64(kvmem.PathNIXLWriteStaged), "nixl_read_served": uint64(kvmem.PathNIXLReadServed),
		"nixl_write_served": uint64(kvmem.PathNIXLWriteServed), "nixl_object_read": uint64(kvmem.PathNIXLObjectRead),
		"nixl_object_write":        uint64(kvmem.PathNIXLObjectWrite),
		"nixl_object_read_staged":  uint64(kvmem.PathNIXLObjectReadStaged),
		"nixl_object_write_staged": uint64(kvmem.PathNIXLObjectWriteStaged),
		"nixl_block_read":          uint64(kvmem.PathNIXLBlockRead),
		"nixl_block_write":         uint64(kvmem.PathNIXLBlockWrite),
	}
	transports = words{
		"auto": uint64(kvmem.ShareAuto), "fd": uint64(kvmem.ShareFD), "ipc": uint64(kvmem.ShareIPC),
		"remote": uint64(kvmem.ShareRemote), "fabric": uint64(kvmem.ShareFabric),
	}
	shareFlags    = words{"read_only": uint64(kvmem.ShareReadOnly), "write_sealed": uint64(kvmem.ShareWriteSealed)}
	sharedObjects = words{"region": uint64(kvmem.SharedRegion), "layout": uint64(kvmem.SharedLayout)}
	openFlags     = words{
		"read_only": uint64(kvmem.OpenReadOnly), "mapped_only": uint64(kvmem.OpenMappedOnly),
		"remote": uint64(kvmem.OpenRemote), "read_write": uint64(kvmem.OpenReadWrite),
	}
	agentFlags = words{
		"no_progress_thread": uint64(kvmem.AgentNoProgressThread), "listen_thread": uint64(kvmem.AgentListenThread),
		"telemetry": uint64(kvmem.AgentTelemetry),
	}
	publishFlags = words{"read_only": uint64(kvmem.PublishReadOnly)}
	fetchFlags   = words{"read_only": uint64(kvmem.FetchReadOnly), "read_write": uint64(kvmem.FetchReadWrite)}
	domains      = map[kvmem.Domain]string{
		kvmem.DomainNone: "none", kvmem.DomainErrno: "system", kvmem.DomainNIXL: "nixl", kvmem.DomainCUDA: "cuda",
	}
)

// wordOf returns the word of a constant.
func wordOf[T ~uint32](words words, constant T) string {
	for word, value := range words {
		if value == uint64(constant) {
			return word
		}
	}
	return "?"
}

func flagsOf[T ~uint64](words words, constants T) string {
	var set []string
	for word, value := range words {
		if uint64(constants)&value != 0 {
			set = append(set, word)
		}
	}
	sort.Strings(set)
	return strings.Join(set, "+")
}
