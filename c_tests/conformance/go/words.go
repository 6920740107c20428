// SPDX-License-Identifier: Apache-2.0
// Code generated from the headers by scripts/bindings.py. DO NOT EDIT.

package main

import kvmem "kvmem/bindings/go"

type words = map[string]uint64

var logLevels = words{
	"off":   uint64(kvmem.LogOff),
	"error": uint64(kvmem.LogError),
	"warn":  uint64(kvmem.LogWarn),
	"info":  uint64(kvmem.LogInfo),
	"debug": uint64(kvmem.LogDebug),
	"trace": uint64(kvmem.LogTrace),
}

var domains = words{
	"none":  uint64(kvmem.DomainNone),
	"errno": uint64(kvmem.DomainErrno),
	"nixl":  uint64(kvmem.DomainNIXL),
	"cuda":  uint64(kvmem.DomainCUDA),
}

var tiers = words{
	"system":  uint64(kvmem.TierSystem),
	"disk":    uint64(kvmem.TierDisk),
	"pinned":  uint64(kvmem.TierPinned),
	"device":  uint64(kvmem.TierDevice),
	"elastic": uint64(kvmem.TierElastic),
	"object":  uint64(kvmem.TierObject),
	"block":   uint64(kvmem.TierBlock),
}

var systemFlags = words{
	"transparent_huge_pages": uint64(kvmem.SystemTransparentHugePages),
	"huge_pages_required":    uint64(kvmem.SystemHugePagesRequired),
	"numa_bind":              uint64(kvmem.SystemNUMABind),
	"shareable":              uint64(kvmem.SystemShareable),
	"no_huge_pages":          uint64(kvmem.SystemNoHugePages),
	"write_sealed":           uint64(kvmem.SystemWriteSealed),
}

var pinnedFlags = words{
	"no_huge_pages": uint64(kvmem.PinnedNoHugePages),
	"numa_bind":     uint64(kvmem.PinnedNUMABind),
	"shareable":     uint64(kvmem.PinnedShareable),
	"write_sealed":  uint64(kvmem.PinnedWriteSealed),
}

var elasticFlags = words{
	"fabric": uint64(kvmem.ElasticFabric),
}

var diskFlags = words{
	"buffered":        uint64(kvmem.DiskBuffered),
	"direct_required": uint64(kvmem.DiskDirectRequired),
	"open_existing":   uint64(kvmem.DiskOpenExisting),
	"open_or_create":  uint64(kvmem.DiskOpenOrCreate),
	"read_only":       uint64(kvmem.DiskReadOnly),
	"no_lock":         uint64(kvmem.DiskNoLock),
}

var adoptFlags = words{
	"read_only":  uint64(kvmem.AdoptReadOnly),
	"keep_seals": uint64(kvmem.AdoptKeepSeals),
}

var origins = words{
	"allocated": uint64(kvmem.OriginAllocated),
	"adopted":   uint64(kvmem.OriginAdopted),
	"view":      uint64(kvmem.OriginView),
	"imported":  uint64(kvmem.OriginImported),
}

var regionFlags = words{
	"direct_io":          uint64(kvmem.RegionDirectIO),
	"preallocated":       uint64(kvmem.RegionPreallocated),
	"temporary":          uint64(kvmem.RegionTemporary),
	"huge_page_fallback": uint64(kvmem.RegionHugePageFallback),
	"shareable":          uint64(kvmem.RegionShareable),
	"read_only":          uint64(kvmem.RegionReadOnly),
}

var memoryTypes = words{
	"dram":   uint64(kvmem.MemoryDRAM),
	"vram":   uint64(kvmem.MemoryVRAM),
	"file":   uint64(kvmem.MemoryFile),
	"block":  uint64(kvmem.MemoryBlock),
	"object": uint64(kvmem.MemoryObject),
}

var accessors = words{
	"run":       uint64(kvmem.AccessorRun),
	"ended_run": uint64(kvmem.AccessorEndedRun),
	"lost_run":  uint64(kvmem.AccessorLostRun),
	"peer":      uint64(kvmem.AccessorPeer),
	"lease":     uint64(kvmem.AccessorLease),
}

var leaseFlags = words{
	"writes": uint64(kvmem.LeaseWrites),
}

var localities = words{
	"local":      uint64(kvmem.LocalityLocal),
	"registered": uint64(kvmem.LocalityRegistered),
	"remote":     uint64(kvmem.LocalityRemote),
	"mapped":     uint64(kvmem.LocalityMapped),
}

var submitFlags = words{
	"verify":   uint64(kvmem.SubmitVerify),
	"checksum": uint64(kvmem.SubmitChecksum),
}

var transferFlags = words{
	"zero_copy":      uint64(kvmem.TransferZeroCopy),
	"no_host_bounce": uint64(kvmem.TransferNoHostBounce),
	"by_layer":       uint64(kvmem.TransferByLayer),
	"report_release": uint64(kvmem.TransferReportRelease),
}

var completionKinds = words{
	"run_ended":       uint64(kvmem.CompletionRunEnded),
	"layers_moved":    uint64(kvmem.CompletionLayersMoved),
	"memory_released": uint64(kvmem.CompletionMemoryReleased),
	"notifications":   uint64(kvmem.CompletionNotifications),
	"events":          uint64(kvmem.CompletionEvents),
}

var computes = words{
	"may_run": uint64(kvmem.ComputeMayRun),
	"idle":    uint64(kvmem.ComputeIdle),
}

var methods = words{
	"memcpy":      uint64(kvmem.MethodMemcpy),
	"cuda_copy":   uint64(kvmem.MethodCUDACopy),
	"cuda_batch":  uint64(kvmem.MethodCUDABatch),
	"cuda_2d":     uint64(kvmem.MethodCUDA2d),
	"cuda_kernel": uint64(kvmem.MethodCUDAKernel),
	"cuda_staged": uint64(kvmem.MethodCUDAStaged),
	"uring":       uint64(kvmem.MethodURING),
	"pread":       uint64(kvmem.MethodPread),
	"nixl":        uint64(kvmem.MethodNIXL),
	"nixl_staged": uint64(kvmem.MethodNIXLStaged),
	"nixl_served": uint64(kvmem.MethodNIXLServed),
}

var choices = words{
	"used":       uint64(kvmem.ChoiceUsed),
	"slower":     uint64(kvmem.ChoiceSlower),
	"not_used":   uint64(kvmem.ChoiceNotUsed),
	"impossible": uint64(kvmem.ChoiceImpossible),
}

var serveFlags = words{
	"write":     uint64(kvmem.ServeWrite),
	"from_host": uint64(kvmem.ServeFromHost),
}

var transports = words{
	"auto":   uint64(kvmem.ShareAuto),
	"fd":     uint64(kvmem.ShareFD),
	"ipc":    uint64(kvmem.ShareIPC),
	"remote": uint64(kvmem.ShareRemote),
	"fabric": uint64(kvmem.ShareFabric),
}

var shareFlags = words{
	"read_only":    uint64(kvmem.ShareReadOnly),
	"write_sealed": uint64(kvmem.ShareWriteSealed),
}

var openFlags = words{
	"read_only":       uint64(kvmem.OpenReadOnly),
	"pin":             uint64(kvmem.OpenPin),
	"mapped_only":     uint64(kvmem.OpenMappedOnly),
	"remote":          uint64(kvmem.OpenRemote),
	"register":        uint64(kvmem.OpenRegister),
	"for_device":      uint64(kvmem.OpenForDevice),
	"read_write":      uint64(kvmem.OpenReadWrite),
	"trust_owner":     uint64(kvmem.OpenTrustOwner),
	"for_all_devices": uint64(kvmem.OpenForAllDevices),
}

var sharedObjects = words{
	"region": uint64(kvmem.SharedRegion),
	"layout": uint64(kvmem.SharedLayout),
}

var publishFlags = words{
	"read_only": uint64(kvmem.PublishReadOnly),
}

var fetchFlags = words{
	"read_only":   uint64(kvmem.FetchReadOnly),
	"broker_user": uint64(kvmem.FetchBrokerUser),
	"read_write":  uint64(kvmem.FetchReadWrite),
}

var durabilities = words{
	"strict":  uint64(kvmem.DurabilityStrict),
	"relaxed": uint64(kvmem.DurabilityRelaxed),
	"none":    uint64(kvmem.DurabilityNone),
}

var evictions = words{
	"store":  uint64(kvmem.EvictionStore),
	"caller": uint64(kvmem.EvictionCaller),
}

var storeFlags = words{
	"unrelated": uint64(kvmem.StoreUnrelated),
}

var directions = words{
	"host_to_host": uint64(kvmem.DirectionHostToHost),
	"host_to_gpu":  uint64(kvmem.DirectionHostToGpu),
	"gpu_to_host":  uint64(kvmem.DirectionGpuToHost),
	"gpu_to_gpu":   uint64(kvmem.DirectionGpuToGpu),
	"read":         uint64(kvmem.DirectionRead),
	"write":        uint64(kvmem.DirectionWrite),
	"pull":         uint64(kvmem.DirectionPull),
	"push":         uint64(kvmem.DirectionPush),
}

var agentFlags = words{
	"no_progress_thread": uint64(kvmem.AgentNoProgressThread),
	"listen_thread":      uint64(kvmem.AgentListenThread),
	"telemetry":          uint64(kvmem.AgentTelemetry),
}

var nixlFlags = words{
	"notify":         uint64(kvmem.NIXLNotify),
	"skip_merge":     uint64(kvmem.NIXLSkipMerge),
	"report_release": uint64(kvmem.NIXLReportRelease),
}

var directoryChanges = words{
	"published":   uint64(kvmem.DirectoryPublished),
	"restarted":   uint64(kvmem.DirectoryRestarted),
	"updated":     uint64(kvmem.DirectoryUpdated),
	"withdrawn":   uint64(kvmem.DirectoryWithdrawn),
	"invalid":     uint64(kvmem.DirectoryInvalid),
	"superseded":  uint64(kvmem.DirectorySuperseded),
	"interrupted": uint64(kvmem.DirectoryInterrupted),
	"resumed":     uint64(kvmem.DirectoryResumed),
	"restored":    uint64(kvmem.DirectoryRestored),
	"full":        uint64(kvmem.DirectoryFull),
}

var operations = words{
	"read":  uint64(kvmem.OperationRead),
	"write": uint64(kvmem.OperationWrite),
}

var syncModes = words{
	"default": uint64(kvmem.SyncDefault),
	"none":    uint64(kvmem.SyncNone),
	"strict":  uint64(kvmem.SyncStrict),
	"rw":      uint64(kvmem.SyncRw),
}

var cudaCapabilities = words{
	"vmm":           uint64(kvmem.CUDAVMM),
	"posix_fd":      uint64(kvmem.CUDAPOSIXFD),
	"fabric":        uint64(kvmem.CUDAFabric),
	"rdma_with_vmm": uint64(kvmem.CUDARDMAWithVMM),
	"dma_buf":       uint64(kvmem.CUDADMABuf),
	"memory_pools":  uint64(kvmem.CUDAMemoryPools),
	"host_numa_vmm": uint64(kvmem.CUDAHostNUMAVMM),
	"batch_copies":  uint64(kvmem.CUDABatchCopies),
}

var ratesSources = words{
	"default":  uint64(kvmem.RatesDefault),
	"measured": uint64(kvmem.RatesMeasured),
	"loaded":   uint64(kvmem.RatesLoaded),
}

var ipcFlags = words{
	"for_device": uint64(kvmem.IPCForDevice),
}

var vmmLocations = words{
	"device":    uint64(kvmem.VMMDevice),
	"host_numa": uint64(kvmem.VMMHostNUMA),
}

var vmmFlags = words{
	"posix_fd": uint64(kvmem.VMMPOSIXFD),
	"fabric":   uint64(kvmem.VMMFabric),
	"rdma":     uint64(kvmem.VMMRDMA),
}

var granularities = words{
	"minimum":     uint64(kvmem.GranularityMinimum),
	"recommended": uint64(kvmem.GranularityRecommended),
}

var accesses = words{
	"none":       uint64(kvmem.AccessNone),
	"read":       uint64(kvmem.AccessRead),
	"read_write": uint64(kvmem.AccessReadWrite),
}
