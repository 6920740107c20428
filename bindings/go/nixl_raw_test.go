// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	kvmem "kvmem/bindings/go"
)

const blockSize = 4096

// rawMemory is memory of a region, whose address NIXL gets as a number.
func rawMemory(t *testing.T, size uint64) (*kvmem.Region, uint64) {
	t.Helper()
	region := need(kvmem.NewSystemRegion(kvmem.SystemOptions{Size: size}))(t)
	t.Cleanup(func() { region.Close() })
	return region, need(region.Info())(t).Address
}

// list is the descriptors of a call.
func list(descriptors ...kvmem.Descriptor) []kvmem.Descriptor { return descriptors }

func TestDescriptors(t *testing.T) {
	a := agent(t, "checking")
	refused := func(want kvmem.Status, part string, descriptors ...kvmem.Descriptor) {
		t.Helper()
		_, err := a.RegisterDescriptors(descriptors, kvmem.NIXLOptions{})
		fails(t, err, want, part)
	}
	refused(kvmem.ErrOutOfRange, "address space", kvmem.Descriptor{Address: ^uint64(0), Size: 2})
	refused(kvmem.ErrInvalidArgument, "NUL", kvmem.Descriptor{Agent: "a\x00b"})
	refused(kvmem.ErrInvalidArgument, "memory_type of descriptors[1]", kvmem.Descriptor{}, kvmem.Descriptor{MemoryType: kvmem.MemoryFile})
	region, address := rawMemory(t, 2*blockSize)
	found := need(region.Descriptors())(t)
	if len(found) != 1 || found[0].Address != address || found[0].Size != 2*blockSize || found[0].Region != region ||
		found[0].MemoryType != kvmem.MemoryDRAM {
		t.Fatalf("%+v", found)
	}
	objects := need(kvmem.NewObjectRegion(kvmem.ObjectOptions{KeyPrefix: "k/", ObjectSize: 4096, Count: 2}))(t)
	defer objects.Close()
	if found = need(objects.Descriptors())(t); len(found) != 2 || string(found[1].Metadata) != "k/0000000001" {
		t.Fatalf("%+v", found)
	}
	region.Close()
	refused(kvmem.ErrInvalidArgument, "closed", kvmem.Descriptor{Region: region})
	_, err := region.Descriptors()
	fails(t, err, kvmem.ErrInvalidArgument, "closed")
}

func TestPlugins(t *testing.T) {
	a := agent(t, "looking")
	found := map[string]kvmem.Plugin{}
	for _, plugin := range need(a.Plugins())(t) {
		found[plugin.Name] = plugin
		if (plugin.Failure == "") != (len(plugin.MemoryTypes) > 0) {
			t.Fatalf("%+v", plugin)
		}
	}
	if found["UCX"].Parameters["ucx_error_handling_mode"] != "peer" {
		t.Fatalf("%+v", found["UCX"])
	}
	backends := need(a.Backends())(t)
	if len(backends) != 1 || backends[0].Name != "UCX" || backends[0].MemoryTypes[0] != kvmem.MemoryDRAM {
		t.Fatalf("%+v", backends)
	}
}

// Two agents of one process, and memory that is described by numbers.
func TestRequests(t *testing.T) {
	near, far := agentWith(t, "near", kvmem.AgentTelemetry), agent(t, "far")
	here, hereAt := rawMemory(t, 2*blockSize)
	there, thereAt := rawMemory(t, 2*blockSize)
	copy(need(there.Bytes())(t), bytes.Repeat([]byte("there"), blockSize/4))
	local := need(here.Descriptors())(t)
	segments := need(far.RegisterDescriptors(list(kvmem.Descriptor{Address: thereAt, Size: 2 * blockSize}), kvmem.NIXLOptions{}))(t)
	defer segments.Close()
	registered := need(here.Register(near))(t)
	defer registered.Close()
	need(near.LoadPeer(need(far.Metadata())(t)))(t)
	if err := near.Connect(context.Background(), "far", kvmem.NIXLOptions{Backends: []string{"UCX"}}); err != nil {
		t.Fatal(err)
	}
	fails(t, near.Connect(context.Background(), "far", kvmem.NIXLOptions{Backends: []string{"POSIX"}}), kvmem.ErrNotFound, "POSIX")

	remote := list(kvmem.Descriptor{Address: thereAt, Size: 2 * blockSize})
	queue := need(kvmem.NewQueue())(t)
	defer queue.Close()
	read := need(near.NewRequest(kvmem.OperationRead, local, "far", remote, kvmem.NIXLOptions{
		Notification: []byte("read"), Queue: queue, UserData: 7, RunTimeout: time.Minute,
	}))(t)
	defer read.Close()
	fails(t, read.Wait(patience(t)), kvmem.ErrInvalidState, "kvmem_request_post")
	for round := 0; round < 3; round++ {
		if err := read.Post(); err != nil {
			t.Fatal(err)
		}
		if err := read.Wait(patience(t)); err != nil {
			t.Fatal(err)
		}
		if completion := need(queue.Next(patience(t)))(t); completion.UserData != 7 || completion.Bytes != 2*blockSize {
			t.Fatalf("%+v", completion)
		}
	}
	if ended, err := read.Poll(); !ended || err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(need(here.Bytes())(t), need(there.Bytes())(t)) {
		t.Fatal("the bytes were not read")
	}
	if backend := need(read.Backend())(t); backend != "UCX" {
		t.Fatal(backend)
	}
	need(read.Estimate())(t)
	if measured := need(read.Telemetry())(t); measured.Bytes != 2*blockSize {
		t.Fatalf("%+v", measured)
	}
	if sums := need(near.Telemetry())(t); sums.Succeeded != 3 || sums.BytesRead != 6*blockSize || sums.BytesWritten != 0 {
		t.Fatalf("%+v", sums)
	}
	_, err := far.Telemetry()
	fails(t, err, kvmem.ErrInvalidState, "KVMEM_AGENT_TELEMETRY")
	for taken := 0; taken < 3; {
		taken += len(need(far.TakeNotifications(patience(t)))(t))
	}

	// The second half there is written from the first half here, by index.
	halves := func(at uint64) []kvmem.Descriptor {
		return list(kvmem.Descriptor{Address: at, Size: blockSize}, kvmem.Descriptor{Address: at + blockSize, Size: blockSize})
	}
	ours := need(near.PrepareLocal(halves(hereAt), kvmem.NIXLOptions{}))(t)
	theirs := need(near.PrepareRemote("far", halves(thereAt), kvmem.NIXLOptions{}))(t)
	copy(need(here.Bytes())(t), bytes.Repeat([]byte("near"), blockSize/4))
	_, err = kvmem.MakeRequest(kvmem.OperationWrite, ours, []uint32{0}, theirs, nil, kvmem.NIXLOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "differ")
	_, err = kvmem.MakeRequest(kvmem.OperationWrite, ours, []uint32{2}, theirs, []uint32{0}, kvmem.NIXLOptions{})
	fails(t, err, kvmem.ErrOutOfRange, "local_indices[0] is 2")
	write := need(kvmem.MakeRequest(kvmem.OperationWrite, ours, []uint32{0}, theirs, []uint32{1}, kvmem.NIXLOptions{}))(t)
	ours.Close()
	if err := write.PostWith([]byte("written")); err != nil {
		t.Fatal(err)
	}
	if err := write.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if !bytes.HasPrefix(need(there.Bytes())(t)[blockSize:], []byte("nearnear")) {
		t.Fatal("the bytes were not written")
	}
	if messages := need(far.TakeNotifications(patience(t)))(t); string(messages[0].Message) != "written" {
		t.Fatalf("%v", messages)
	}

	if count := need(near.InvalidateAllPeers())(t); count != 1 {
		t.Fatal(count)
	}
	fails(t, read.Post(), kvmem.ErrStale, "")
	if err := segments.Deregister(); err != nil {
		t.Fatal(err)
	}
	_, err = near.NewRequest(kvmem.OperationRead, local, "far", remote, kvmem.NIXLOptions{Backends: []string{"a\x00b"}})
	fails(t, err, kvmem.ErrInvalidArgument, "NUL")
	_, err = near.Query(context.Background(), local, kvmem.NIXLOptions{Queue: queue})
	fails(t, err, kvmem.ErrInvalidArgument, "only requests")
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = near.Query(done, local, kvmem.NIXLOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err = near.Connect(done, "far", kvmem.NIXLOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	_, err = near.NewMemoryView(nil, kvmem.NIXLOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "no descriptor")
	fails(t, near.WithdrawMetadata("127.0.0.1", 1), kvmem.ErrInvalidState, "listen")
	fails(t, near.SendPartialMetadata(local, "127.0.0.1", 1), kvmem.ErrInvalidState, "listen")
	if metadata := need(near.PartialMetadata(nil, kvmem.NIXLOptions{}))(t); len(metadata) == 0 {
		t.Fatal("no descriptors have the connection information")
	}
}

// A layout over memory of a peer of which only the address is known.
func TestRemoteLayout(t *testing.T) {
	near, far := agent(t, "near"), agent(t, "far")
	shape := config()
	size := need(shape.Requirements())(t).RegionSize
	memory, address := rawMemory(t, size)
	segments := need(far.RegisterDescriptors(list(kvmem.Descriptor{Address: address, Size: size}), kvmem.NIXLOptions{}))(t)
	defer segments.Close()
	need(near.LoadPeer(need(far.Metadata())(t)))(t)
	theirs := need(near.RemoteLayout("far", shape, list(kvmem.Descriptor{Address: address, Size: size})))(t)
	defer theirs.Close()
	ours := need(kvmem.NewLayout(kvmem.LayoutOptions{Config: shape, Agent: near, Memory: kvmem.SystemOptions{}}))(t)
	defer ours.Close()
	fill(t, ours, 3)
	transfer := need(kvmem.StartTransfer(ours, theirs, kvmem.TransferOptions{}, kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 2, Destination: 0}},
	}))(t)
	defer transfer.Close()
	if err := transfer.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
	piece := need(ours.Bytes(2, 0, 0))(t)
	if !bytes.HasPrefix(need(memory.Bytes())(t), piece) {
		t.Fatal("the block was not written")
	}
	_, err := near.RemoteLayout("far", shape, list(kvmem.Descriptor{Address: address, Size: 1}))
	fails(t, err, kvmem.ErrOutOfRange, "")
}

func TestReportedNotifications(t *testing.T) {
	near, far := agent(t, "near"), agent(t, "far")
	need(near.LoadPeer(need(far.Metadata())(t)))(t)
	first, second := need(kvmem.NewQueue())(t), need(kvmem.NewQueue())(t)
	defer first.Close()
	defer second.Close()
	for i, queue := range []*kvmem.Queue{first, second} {
		if err := far.ReportNotifications(queue, uint64(i)); err != nil {
			t.Fatal(err)
		}
		if err := near.Notify("far", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		if completion := need(queue.Next(patience(t)))(t); completion.UserData != uint64(i) || completion.Err != nil {
			t.Fatalf("%+v", completion)
		}
		if messages := need(far.TakeNotifications(patience(t)))(t); messages[0].Message[0] != byte(i) {
			t.Fatalf("%v", messages)
		}
	}
	if err := far.ReportNotifications(nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := near.Notify("far", []byte("x")); err != nil {
		t.Fatal(err)
	}
	need(far.TakeNotifications(patience(t)))(t)
	if completion, ok := second.Poll(); ok {
		t.Fatalf("%+v", completion)
	}
	first.Close()
	fails(t, far.ReportNotifications(first, 0), kvmem.ErrInvalidArgument, "closed")
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := second.Next(done); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
