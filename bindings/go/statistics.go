// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// Statistics is what exists in this process, and what has happened since it was started or forked.
type Statistics struct {
	// RunsInFlight have started and not ended.
	RunsInFlight uint64
	// SystemBytes and the others below are those of the regions of a tier, without views.
	SystemBytes, PinnedBytes, DeviceBytes uint64
	// ElasticBytes of addresses, of which ElasticCommittedBytes have memory.
	ElasticBytes, ElasticCommittedBytes uint64
	DiskBytes, ObjectBytes, BlockBytes  uint64
	// NumRegistrations of regions with agents.
	NumRegistrations uint64
	// NumStoreHits are keys that gets of stores have found.
	NumStoreHits, NumStoreMisses, NumStoreEvicted, NumStoreDamaged uint64
	// NumRegions and the others below are handles that were not destroyed.
	NumRegions, NumLayouts, NumTransfers, NumQueues, NumShares, NumBrokers, NumAgents, NumDirectories, NumStores, NumRequests, NumLeases uint64
	// MappedBytes of regions of other processes, StagingBytes of staging memory, and LockedBytesLimit that the process may lock in memory.
	MappedBytes, StagingBytes, LockedBytesLimit uint64
	// ExcessBytes that staged runs have read from peers and discarded.
	ExcessBytes uint64
	// NumPeerStagingWaits and NumGPUWaits are times that a run has begun to wait, NumElapsedWaits calls whose timeout has elapsed.
	NumPeerStagingWaits, NumGPUWaits, NumElapsedWaits uint64
	// NumFileRetries of reads and writes, and NumFallbacks to another method, because the best one could not be prepared.
	NumFileRetries, NumFallbacks uint64
}

// MethodStatistics is what has happened by one method.
type MethodStatistics struct {
	// Runs that have ended, by Direction, and then by the negative value of their Status.
	Runs [8][24]uint64
	// Bytes of the runs that have succeeded, by Direction.
	Bytes [8]uint64
	// Latencies are the runs that have succeeded, by their bytes (up to 64 KiB, 1 MiB, 16 MiB, 256 MiB, more), and then by their
	// duration: at index i at most 1 << (10 + i) nanoseconds, at index 23 more.
	Latencies [5][24]uint64
	// LatencySumsNs are the sums of these durations in nanoseconds.
	LatencySumsNs [5]uint64
}

// ReadStatistics returns what exists in this process, and what has happened in it.
func ReadStatistics() (Statistics, error) {
	var s C.kvmem_statistics
	s.struct_size = C.size_t(unsafe.Sizeof(s))
	if err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_statistics_get(&s, failure) }); err != nil {
		return Statistics{}, err
	}
	return Statistics{
		RunsInFlight: uint64(s.runs_in_flight), SystemBytes: uint64(s.system_bytes), PinnedBytes: uint64(s.pinned_bytes),
		DeviceBytes: uint64(s.device_bytes), ElasticBytes: uint64(s.elastic_bytes),
		ElasticCommittedBytes: uint64(s.elastic_committed_bytes), DiskBytes: uint64(s.disk_bytes),
		ObjectBytes: uint64(s.object_bytes), BlockBytes: uint64(s.block_bytes),
		NumRegistrations: uint64(s.num_registrations), NumStoreHits: uint64(s.num_store_hits),
		NumStoreMisses: uint64(s.num_store_misses), NumStoreEvicted: uint64(s.num_store_evicted),
		NumStoreDamaged: uint64(s.num_store_damaged), NumRegions: uint64(s.num_regions), NumLayouts: uint64(s.num_layouts),
		NumTransfers: uint64(s.num_transfers), NumQueues: uint64(s.num_queues), NumShares: uint64(s.num_shares),
		NumBrokers: uint64(s.num_brokers), NumAgents: uint64(s.num_agents), NumDirectories: uint64(s.num_directories),
		NumStores: uint64(s.num_stores), NumRequests: uint64(s.num_requests), NumLeases: uint64(s.num_leases),
		MappedBytes: uint64(s.mapped_bytes), StagingBytes: uint64(s.staging_bytes), LockedBytesLimit: uint64(s.locked_bytes_limit),
		ExcessBytes: uint64(s.excess_bytes), NumPeerStagingWaits: uint64(s.num_peer_staging_waits),
		NumGPUWaits: uint64(s.num_gpu_waits), NumElapsedWaits: uint64(s.num_elapsed_waits),
		NumFileRetries: uint64(s.num_file_retries), NumFallbacks: uint64(s.num_fallbacks),
	}, nil
}

// ReadMethodStatistics returns what has happened by one method; 0 for requests on raw descriptors.
func ReadMethodStatistics(method Method) (MethodStatistics, error) {
	var s C.kvmem_method_statistics
	s.struct_size = C.size_t(unsafe.Sizeof(s))
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_statistics_get_method(C.uint32_t(method), &s, failure)
	})
	if err != nil {
		return MethodStatistics{}, err
	}
	var read MethodStatistics
	for direction, runs := range s.runs {
		for status, count := range runs {
			read.Runs[direction][status] = uint64(count)
		}
		read.Bytes[direction] = uint64(s.bytes[direction])
	}
	for class, latencies := range s.latencies {
		for bucket, count := range latencies {
			read.Latencies[class][bucket] = uint64(count)
		}
		read.LatencySumsNs[class] = uint64(s.latency_sums_ns[class])
	}
	return read, nil
}

// StatisticsText returns the statistics as text for Prometheus.
func StatisticsText() (string, error) {
	var text *C.kvmem_blob
	if err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_statistics_text(&text, failure) }); err != nil {
		return "", err
	}
	return string(blob(text)), nil
}

// ExportTrace returns the last runs with their phases as JSON in the trace format of Chrome.
func ExportTrace() ([]byte, error) {
	var json *C.kvmem_blob
	if err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_trace_export(&json, failure) }); err != nil {
		return nil, err
	}
	return blob(json), nil
}

// ServeStatistics lets `kvmem-doctor top` of the same user read this process, until it ends.
func ServeStatistics() error {
	return try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_statistics_serve(failure) })
}
