// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	kvmem "kvmem/bindings/go"
)

// gpu skips a test on a machine without a GPU. KVMEM_TEST_CUDA requires one, real or of the stand-in driver.
func gpu(t *testing.T) {
	t.Helper()
	if _, err := kvmem.GetCUDAInfo(); err != nil {
		if !errors.Is(err, kvmem.ErrUnavailableCUDA) || os.Getenv("KVMEM_TEST_CUDA") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestWithoutCUDA(t *testing.T) {
	if _, err := kvmem.GetCUDAInfo(); err == nil {
		t.Skip("there is a GPU")
	}
	_, err := kvmem.NewDeviceRegion(kvmem.DeviceOptions{Size: 4096})
	fails(t, err, kvmem.ErrUnavailableCUDA, "")
	_, err = kvmem.NewPinnedRegion(kvmem.PinnedOptions{Size: 4096})
	fails(t, err, kvmem.ErrUnavailableCUDA, "")
	_, err = kvmem.NewVMMRange(4096, 0)
	fails(t, err, kvmem.ErrUnavailableCUDA, "")
	_, err = kvmem.DescribeRates([]byte("no rates"))
	fails(t, err, kvmem.ErrCorrupt, "")
}

func TestDevices(t *testing.T) {
	gpu(t)
	info := need(kvmem.GetCUDADeviceInfo(0))(t)
	if info.Name == "" || info.TotalMemory == 0 || info.Capabilities&kvmem.CUDAVMM == 0 {
		t.Fatalf("%+v", info)
	}
	if device := need(kvmem.FindCUDADevice(info.UUID))(t); device != 0 {
		t.Fatal(device)
	}
	if info.CanAccess&1 == 0 {
		t.Fatal("a GPU cannot access itself")
	}
	_, err := kvmem.GetCUDADeviceInfo(1000)
	fails(t, err, kvmem.ErrOutOfRange, "1000")
	rates := need(kvmem.CopyRates(0, 0))(t)
	if described := need(kvmem.DescribeRates(rates))(t); described.UUID != info.UUID || described.Text == "" {
		t.Fatalf("%+v", described)
	}
	if err := kvmem.SetCopyRates(0, 0, rates); err != nil {
		t.Fatal(err)
	}
	if err := kvmem.UseDefaultRates(0); err != nil {
		t.Fatal(err)
	}
}

func TestPinned(t *testing.T) {
	gpu(t)
	var reports []uint64
	region := need(kvmem.NewPinnedRegion(kvmem.PinnedOptions{
		Size: 1 << 20, ChunkSize: 1 << 18, Flags: kvmem.PinnedNoHugePages,
		Progress: func(done, total uint64) bool { reports = append(reports, done); return total == 1<<20 },
	}))(t)
	defer region.Close()
	if len(reports) != 4 || reports[3] != 1<<20 {
		t.Fatal(reports)
	}
	if memory := need(region.Bytes())(t); len(memory) != 1<<20 {
		t.Fatal(len(memory))
	}
	_, err := kvmem.NewPinnedRegion(kvmem.PinnedOptions{Size: 1 << 20, Progress: func(uint64, uint64) bool { return false }})
	fails(t, err, kvmem.ErrCancelled, "")
	panicked := make(chan any, 1)
	kvmem.SetPanicHandler(func(value any, stack []byte) { panicked <- value })
	defer kvmem.SetPanicHandler(nil)
	_, err = kvmem.NewPinnedRegion(kvmem.PinnedOptions{Size: 1 << 20, Progress: func(uint64, uint64) bool { panic("progress") }})
	fails(t, err, kvmem.ErrCancelled, "")
	if value := <-panicked; value != "progress" {
		t.Fatal(value)
	}
}

func TestGPUTransfer(t *testing.T) {
	gpu(t)
	host := build(t, config())
	fill(t, host, 8)
	device := need(kvmem.NewLayout(kvmem.LayoutOptions{Config: config(), Memory: kvmem.DeviceOptions{}}))(t)
	defer device.Close()
	_, err := device.Bytes(0, 0, 0)
	fails(t, err, kvmem.ErrUnsupported, "host memory")
	transfer := need(kvmem.StartTransfer(host, device, kvmem.TransferOptions{}, kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 1, Destination: 4}},
	}))(t)
	defer transfer.Close()
	if err := transfer.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
	sameBlock(t, host, 1, device, 4)
	if method := need(transfer.Info())(t).Method.String(); !strings.HasPrefix(method, "CUDA") {
		t.Fatal(method)
	}

	// The default stream is one of a current context, and this thread has none.
	fails(t, transfer.SubmitOnStream(nil, nil), kvmem.ErrInvalidArgument, "context")
	fails(t, transfer.CaptureOnStream(nil), kvmem.ErrInvalidArgument, "context")
	pairs := []kvmem.BlockPair{{Source: 2, Destination: 5}}
	fails(t, transfer.SubmitOnStream(&kvmem.SubmitOptions{Pairs: pairs}, nil), kvmem.ErrInvalidArgument, "context")
	if err := transfer.WaitOnStream(99, nil); err == nil {
		t.Fatal("a stream waits for layers that do not exist")
	}

	region := need(device.Region(0))(t)
	defer region.Close()
	address := need(region.Info())(t).Address
	adopted := need(kvmem.AdoptDevice(address, 4096, 0, nil))(t)
	adopted.Close()
	handle := need(kvmem.ExportIPC(address))(t)
	if handle.Base > address || handle.BaseSize == 0 {
		t.Fatalf("%+v", handle)
	}
	_, err = kvmem.OpenIPC(kvmem.IPCOptions{Handle: handle.Handle, Size: 4096, BaseSize: handle.BaseSize})
	fails(t, err, kvmem.ErrInvalidArgument, "")
}

func TestElastic(t *testing.T) {
	gpu(t)
	region := need(kvmem.NewElasticRegion(kvmem.ElasticOptions{Size: 1 << 28}))(t)
	defer region.Close()
	extent := need(region.Info())(t).MemoryPageSize
	if err := region.Commit(0, 1); err != nil {
		t.Fatal(err)
	}
	if info := need(region.Info())(t); info.NumCommitted != 1 || info.NumExtents != 1<<28/extent {
		t.Fatalf("%+v", info)
	}
	if err := region.Decommit(0, extent); err != nil {
		t.Fatal(err)
	}
	layout := need(kvmem.NewLayout(kvmem.LayoutOptions{Config: config(), Memory: kvmem.ElasticOptions{}}))(t)
	defer layout.Close()
	if err := layout.Resize(4); err != nil {
		t.Fatal(err)
	}
}

func TestVMM(t *testing.T) {
	gpu(t)
	options := kvmem.VMMOptions{Flags: kvmem.VMMPOSIXFD}
	options.Size = need(kvmem.VMMGranularity(options, kvmem.GranularityMinimum))(t)
	memory := need(kvmem.NewVMMMemory(options))(t)
	defer memory.Close()
	reserved := need(kvmem.NewVMMRange(2*options.Size, 0))(t)
	defer reserved.Close()
	if reserved.Address == 0 || reserved.Size != 2*options.Size {
		t.Fatal(reserved.Address, reserved.Size)
	}
	mapping := need(reserved.Map(options.Size, memory))(t)
	defer mapping.Close()
	if mapping.Address != reserved.Address+options.Size || mapping.Size != options.Size {
		t.Fatal(mapping.Address, mapping.Size)
	}
	if err := mapping.SetAccess(0, kvmem.AccessReadWrite); err != nil {
		t.Fatal(err)
	}
	if access := need(mapping.Access(0))(t); access != kvmem.AccessReadWrite {
		t.Fatal(access)
	}
	retained := need(kvmem.RetainVMMMemory(mapping.Address))(t)
	retained.Close()
	fd := need(memory.ExportFD())(t)
	defer syscall.Close(fd)
	imported := need(kvmem.ImportVMMFD(fd, options.Size, kvmem.VMMAnyDevice))(t)
	imported.Close()
	_, err := memory.ExportFabric()
	fails(t, err, kvmem.ErrInvalidState, "")
	_, err = kvmem.ImportVMMFabric(kvmem.FabricHandle{}, options.Size, kvmem.VMMAnyDevice)
	if err == nil {
		t.Fatal("zeroes are a fabric handle")
	}
}
