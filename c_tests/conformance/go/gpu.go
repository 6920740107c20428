// SPDX-License-Identifier: Apache-2.0

package main

import kvmem "kvmem/bindings/go"

var gpuCalls = map[string]call{
	"cuda_get_info": cudaInfo, "cuda_get_device_info": deviceInfo,
}

var gpuCreators = map[string]call{
	"region_create_pinned": createPinned, "region_create_device": createDevice, "region_create_elastic": createElastic,
}

func device(s *step) int32 { return int32(s.in.number("device")) }

func createPinned(s *step) error {
	r, err := kvmem.NewPinnedRegion(kvmem.PinnedOptions{
		Flags: flags[kvmem.PinnedFlags](s.in, "flags", pinnedFlags), Size: s.in.number("size"), Device: device(s),
	})
	return create(s, r, err)
}

func createDevice(s *step) error {
	r, err := kvmem.NewDeviceRegion(kvmem.DeviceOptions{Size: s.in.number("size"), Device: device(s)})
	return create(s, r, err)
}

func createElastic(s *step) error {
	r, err := kvmem.NewElasticRegion(kvmem.ElasticOptions{
		Size: s.in.number("size"), ExtentSize: s.in.number("extent_size"), Device: device(s),
	})
	return create(s, r, err)
}

func cudaInfo(s *step) error {
	i, err := kvmem.GetCUDAInfo()
	s.put("driver_version", i.DriverVersion)
	s.put("device_count", i.DeviceCount)
	return err
}

func deviceInfo(s *step) error {
	i, err := kvmem.GetCUDADeviceInfo(device(s))
	s.put("total_memory", i.TotalMemory)
	s.put("can_access", i.CanAccess)
	s.put("compute_capability_major", i.ComputeCapabilityMajor)
	s.put("compute_capability_minor", i.ComputeCapabilityMinor)
	s.put("multiprocessors", i.Multiprocessors)
	return err
}

// asNumber is how tables write a boolean.
func asNumber(value bool) int {
	if value {
		return 1
	}
	return 0
}
