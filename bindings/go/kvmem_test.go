// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	kvmem "kvmem/bindings/go"
)

// config is the shape of most tests.
func config() kvmem.LayoutConfig {
	return kvmem.LayoutConfig{
		NumBlocks: 8, NumLayers: 3, OuterDim: 2, PageSize: 4, InnerDim: 32, DtypeWidth: 2,
		Order: kvmem.OrderFullyContiguous,
	}
}

// need returns the value of a call that must not fail.
func need[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func build(t *testing.T, config kvmem.LayoutConfig) *kvmem.Layout {
	t.Helper()
	layout, err := kvmem.NewLayout(kvmem.LayoutOptions{Config: config, Memory: kvmem.SystemOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { layout.Close() })
	return layout
}

// patience ends a test that would wait forever.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func fails(t *testing.T, err error, status kvmem.Status, part string) {
	t.Helper()
	if !errors.Is(err, status) || !strings.Contains(err.Error(), part) {
		t.Fatalf("found %v, expected %s with %q", err, status.Name(), part)
	}
}

func TestVersions(t *testing.T) {
	if kvmem.ABIVersion() != kvmem.HeaderABIVersion {
		t.Fatalf("ABI %d, headers %d", kvmem.ABIVersion(), kvmem.HeaderABIVersion)
	}
	if !strings.HasPrefix(kvmem.Version(), "0.1.") {
		t.Fatal(kvmem.Version())
	}
}

func TestStatistics(t *testing.T) {
	before := need(kvmem.ReadMethodStatistics(kvmem.MethodMemcpy))(t)
	source, destination := build(t, config()), build(t, config())
	transfer := need(kvmem.NewTransfer(source, destination, kvmem.TransferOptions{}))(t)
	defer transfer.Close()
	if statistics := need(kvmem.ReadStatistics())(t); statistics.NumTransfers == 0 || statistics.SystemBytes == 0 {
		t.Errorf("%+v", statistics)
	}
	after := need(kvmem.ReadMethodStatistics(kvmem.MethodMemcpy))(t)
	if after.Runs[kvmem.DirectionHostToHost][0] < before.Runs[kvmem.DirectionHostToHost][0] {
		t.Errorf("%d runs after %d", after.Runs[kvmem.DirectionHostToHost][0], before.Runs[kvmem.DirectionHostToHost][0])
	}
	if text := need(kvmem.StatisticsText())(t); !strings.Contains(text, "# TYPE kvmem_runs_total counter\n") {
		t.Error(text)
	}
	var trace struct{ TraceEvents []any }
	if err := json.Unmarshal(need(kvmem.ExportTrace())(t), &trace); err != nil || len(trace.TraceEvents) == 0 {
		t.Errorf("%d events, %v", len(trace.TraceEvents), err)
	}
}

func TestErrors(t *testing.T) {
	_, err := kvmem.NewDiskRegion(kvmem.DiskOptions{Path: "/nowhere/file", Size: 4096})
	fails(t, err, kvmem.ErrNotFound, "/nowhere/file")
	if !errors.Is(err, syscall.ENOENT) || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%v does not unwrap to ENOENT", err)
	}
	var failure *kvmem.Error
	if !errors.As(err, &failure) || failure.CodeName != "ENOENT" || failure.Domain != kvmem.DomainErrno {
		t.Fatalf("%+v", failure)
	}
	if errors.Is(err, kvmem.ErrStale) || kvmem.ErrStale.Name() != "KVMEM_STATUS_STALE" || kvmem.ErrStale.Error() == "" {
		t.Fatal("another status")
	}
	_, err = kvmem.NewDiskRegion(kvmem.DiskOptions{Path: "/tmp/a\x00b", Size: 4096})
	fails(t, err, kvmem.ErrInvalidArgument, `a\x00b`)
}

func TestClose(t *testing.T) {
	region := need(kvmem.NewSystemRegion(kvmem.SystemOptions{Size: 1 << 16}))(t)
	view := need(region.View(4096, 4096))(t)
	for i := 0; i < 2; i++ {
		if err := region.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := region.Info()
	fails(t, err, kvmem.ErrInvalidArgument, "the region is closed")
	if !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	// The view keeps the memory.
	memory := need(view.Bytes())(t)
	copy(memory, "bytes")
	if info := need(view.Info())(t); info.Size != 4096 || info.Origin != kvmem.OriginView {
		t.Fatalf("%+v", info)
	}
	var none *kvmem.Region
	if err := none.Close(); err != nil {
		t.Fatal(err)
	}
	fails(t, none.Sync(), kvmem.ErrInvalidArgument, "nil")
	fails(t, (&kvmem.Region{}).Sync(), kvmem.ErrInvalidArgument, "nil")
	view.Close()
}

func TestCloseBesideCalls(t *testing.T) {
	region := need(kvmem.NewSystemRegion(kvmem.SystemOptions{Size: 1 << 16}))(t)
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				info, err := region.Info()
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err != nil || info.Size != 1<<16 {
					t.Errorf("%+v %v", info, err)
					return
				}
			}
		}()
	}
	for i := 0; i < 100; i++ {
		if _, err := region.Holders(); err != nil {
			t.Error(err)
		}
	}
	region.Close()
	group.Wait()
}

// An unreachable handle is closed by the garbage collector.
func TestUnreachable(t *testing.T) {
	region := need(kvmem.NewSystemRegion(kvmem.SystemOptions{Size: 1 << 16}))(t)
	func() { need(region.View(0, 4096))(t) }()
	for i := 0; i < 1000; i++ {
		runtime.GC()
		if need(region.Holders())(t).Views == 0 {
			region.Close()
			return
		}
		runtime.Gosched()
	}
	t.Fatal("the view was never closed")
}

func TestRegions(t *testing.T) {
	region := need(kvmem.NewSystemRegion(kvmem.SystemOptions{Size: 1 << 16, PrefaultThreads: 2}))(t)
	defer region.Close()
	if residency := need(region.Residency())(t); residency.ResidentBytes < 1<<16 {
		t.Fatalf("%+v", residency)
	}
	if holders := need(region.Holders())(t); holders.Handles != 1 {
		t.Fatalf("%+v", holders)
	}
	if err := region.CheckOwner(); err != nil {
		t.Fatal(err)
	}
	fails(t, region.Commit(0, 1), kvmem.ErrInvalidArgument, "elastic")
	fails(t, region.Decommit(0, 1), kvmem.ErrInvalidArgument, "elastic")
	_, err := region.Path()
	fails(t, err, kvmem.ErrNotFound, "")
	_, err = region.AgentName(0)
	fails(t, err, kvmem.ErrNotFound, "")

	path := filepath.Join(t.TempDir(), "file")
	disk := need(kvmem.NewDiskRegion(kvmem.DiskOptions{Path: path, Size: 1 << 16}))(t)
	defer disk.Close()
	if found := need(disk.Path())(t); filepath.Base(found) != "file" {
		t.Fatal(found)
	}
	if err := disk.Sync(); err != nil {
		t.Fatal(err)
	}
	_, err = disk.Bytes()
	fails(t, err, kvmem.ErrUnsupported, "host memory")
}

func TestAdopt(t *testing.T) {
	mapped, err := syscall.Mmap(-1, 0, 1<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan struct{})
	region := need(kvmem.AdoptHost(mapped, 0, func() { close(released) }))(t)
	copy(mapped[100:], "of the caller")
	if memory := need(region.Bytes())(t); !bytes.HasPrefix(memory[100:], []byte("of the caller")) {
		t.Fatal("other memory")
	}
	region.Close()
	<-released
	if err := syscall.Munmap(mapped); err != nil {
		t.Fatal(err)
	}
	_, err = kvmem.AdoptHost(nil, 0, nil)
	fails(t, err, kvmem.ErrInvalidArgument, "empty")

	file := need(os.Create(filepath.Join("/dev/shm", "kvmem-go-test")))(t)
	defer file.Close()
	os.Remove(file.Name())
	if err := file.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	unmapped := make(chan struct{})
	adopted := need(kvmem.AdoptMemfd(kvmem.AdoptMemfdOptions{
		FD: int32(file.Fd()), Size: 1 << 16, Flags: kvmem.AdoptKeepSeals, Release: func() { close(unmapped) },
	}))(t)
	copy(need(adopted.Bytes())(t), "in the file")
	found := make([]byte, 11)
	if _, err := file.ReadAt(found, 0); err != nil || string(found) != "in the file" {
		t.Fatal(string(found), err)
	}
	adopted.Close()
	<-unmapped
	_, err = kvmem.AdoptMemfd(kvmem.AdoptMemfdOptions{FD: -1, Size: 4096})
	fails(t, err, kvmem.ErrInvalidArgument, "")
}

// Memory of the Go heap is pinned while it is adopted.
func TestAdoptHeap(t *testing.T) {
	released := make(chan struct{})
	heap := make([]byte, 1<<16)
	region := need(kvmem.AdoptHost(heap, 0, func() { close(released) }))(t)
	memory := need(region.Bytes())(t)
	runtime.GC()
	heap[7] = 42
	if memory[7] != 42 {
		t.Fatal("other memory")
	}
	region.Close()
	<-released
}

func TestLayouts(t *testing.T) {
	layout := build(t, config())
	requirements := need(config().Requirements())(t)
	if requirements.NumRegions != 1 || requirements.TotalSize != 8*3*2*4*32*2 {
		t.Fatalf("%+v", requirements)
	}
	info := need(layout.Info())(t)
	if info.Config.NumBlocks != 8 || info.Config.Order != kvmem.OrderFullyContiguous || info.Locality != kvmem.LocalityLocal {
		t.Fatalf("%+v", info)
	}
	block := need(layout.Block(5, 2, 1))(t)
	if block.Address != info.Bases[0]+5*info.Config.BlockStride+2*info.Config.LayerStride+info.Config.OuterStride || block.Size != 256 {
		t.Fatalf("%+v %+v", block, info)
	}
	row := need(layout.Row(5, 2, 1, 3, 0))(t)
	if row.Address != block.Address+3*64 || row.Size != 64 {
		t.Fatalf("%+v", row)
	}
	copy(need(layout.RowBytes(5, 2, 1, 3, 0))(t), "token 3")
	if memory := need(layout.Bytes(5, 2, 1))(t); string(memory[192:199]) != "token 3" {
		t.Fatal("other memory")
	}
	_, err := layout.Block(8, 0, 0)
	fails(t, err, kvmem.ErrOutOfRange, "8")
	if info.Agent != "" {
		t.Fatal(info.Agent)
	}
	_, err = layout.Export()
	fails(t, err, kvmem.ErrInvalidState, "agent")
	fails(t, layout.Resize(4), kvmem.ErrInvalidState, "elastic")

	// A region of a layout keeps the layout's memory.
	region := need(layout.Region(0))(t)
	defer region.Close()
	if size := need(region.Info())(t).Size; size < requirements.RegionSize {
		t.Fatal(size)
	}
	_, err = layout.Region(1)
	fails(t, err, kvmem.ErrOutOfRange, "1")

	_, err = kvmem.NewLayout(kvmem.LayoutOptions{Config: config()})
	fails(t, err, kvmem.ErrInvalidArgument, "exactly one")
	own := need(kvmem.NewLayout(kvmem.LayoutOptions{Config: config(), Regions: []*kvmem.Region{region}}))(t)
	if own.Close() != nil {
		t.Fatal("close")
	}
	ordered := config()
	ordered.Order, ordered.NumHeads = "L/OBNHC", 2
	if info := need(build(t, ordered).Info())(t); info.NumRegions != 3 || info.Config.Order != "L/OBNHC" {
		t.Fatalf("%+v", info)
	}
}
