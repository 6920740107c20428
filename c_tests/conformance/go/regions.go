// SPDX-License-Identifier: Apache-2.0

package main

import (
	"syscall"

	kvmem "kvmem/bindings/go"
)

var regionCalls = map[string]call{
	"region_get_info": regionInfo, "region_get_path": regionPath, "await_release": awaitRelease,
}

var regionCreators = map[string]call{
	"region_create_system": createSystem, "region_create_disk": createDisk, "region_create_view": createView,
	"region_adopt_host": adoptHost,
}

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
	s.put("memory_page_size", i.MemoryPageSize)
	s.put("num_extents", i.NumExtents)
	s.put("num_committed", i.NumCommitted)
	s.put("generation", i.Generation)
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

func awaitRelease(s *step) error {
	released, ok := s.state.released[s.name]
	if !ok {
		fail("no region %q was adopted", s.name)
	}
	<-released
	return nil
}
