// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	kvmem "kvmem/bindings/go"
)

// fill writes other bytes to each block.
func fill(t *testing.T, layout *kvmem.Layout, seed byte) {
	t.Helper()
	c := need(layout.Info())(t).Config
	for block := uint64(0); block < c.NumBlocks; block++ {
		for layer := uint64(0); layer < c.NumLayers; layer++ {
			for outer := uint64(0); outer < c.OuterDim; outer++ {
				for i, memory := 0, need(layout.Bytes(uint32(block), layer, outer))(t); i < len(memory); i++ {
					memory[i] = seed + byte(i*7+int(block)*31+int(layer)*5+int(outer)*3)
				}
			}
		}
	}
}

func sameBlock(t *testing.T, a *kvmem.Layout, block uint32, b *kvmem.Layout, other uint32) {
	t.Helper()
	first, second := need(a.Checksums(context.Background(), []uint32{block}))(t), need(b.Checksums(context.Background(), []uint32{other}))(t)
	if first[0] != second[0] {
		t.Fatalf("block %d and block %d differ", block, other)
	}
}

func TestTransfer(t *testing.T) {
	source := build(t, config())
	separate := config()
	separate.Order = kvmem.OrderLayerSeparate
	destination := build(t, separate)
	fill(t, source, 1)
	transfer := need(kvmem.NewTransfer(source, destination, kvmem.TransferOptions{}))(t)
	defer transfer.Close()
	succeeds(t, transfer.Prepare(kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 2, Destination: 5}, {Source: 3, Destination: 0}},
		Flags: kvmem.SubmitVerify | kvmem.SubmitChecksum,
	}))
	_, err := transfer.Poll()
	fails(t, err, kvmem.ErrInvalidState, "submitted")
	fails(t, transfer.Wait(patience(t)), kvmem.ErrInvalidState, "submitted")
	fails(t, transfer.Cancel(), kvmem.ErrInvalidState, "submitted")
	for i := 0; i < 3; i++ {
		if err := transfer.Submit(nil); err != nil {
			t.Fatal(err)
		}
		if err := transfer.Wait(patience(t)); err != nil {
			t.Fatal(err)
		}
	}
	sameBlock(t, source, 2, destination, 5)
	sameBlock(t, source, 3, destination, 0)
	if ended, err := transfer.Poll(); !ended || err != nil {
		t.Fatal(ended, err)
	}
	moved := need(transfer.Checksums())(t)
	if need(source.Checksums(context.Background(), []uint32{2, 3}))(t)[1] != moved[1] || len(moved) != 2 {
		t.Fatal(moved)
	}
	if different := need(transfer.Mismatches())(t); len(different) != 0 {
		t.Fatal(different)
	}
	moved[1]++
	succeeds(t, transfer.Submit(&kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 2, Destination: 5}, {Source: 3, Destination: 0}}, Checksums: moved,
	}))
	fails(t, transfer.Wait(patience(t)), kvmem.ErrCorrupt, "pair 1")
	if different := need(transfer.Mismatches())(t); len(different) != 1 || different[0] != 1 {
		t.Fatal(different)
	}
	_, err = transfer.Checksums()
	fails(t, err, kvmem.ErrInvalidState, "KVMEM_SUBMIT_CHECKSUM")
	succeeds(t, transfer.Submit(&kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 2, Destination: 5}, {Source: 3, Destination: 0}},
	}))
	succeeds(t, transfer.Wait(patience(t)))
	if info := need(transfer.Info())(t); info.Bytes != 2*1536 || info.Method.String() != "memcpy" || info.Duration == 0 {
		t.Fatalf("%+v", info)
	}
	if text := need(transfer.Explain())(t); text == "" {
		t.Fatal("no text")
	}
	methods := need(transfer.Methods())(t)
	if len(methods) == 0 || methods[0].Choice != kvmem.ChoiceUsed || methods[0].Method.String() != "memcpy" {
		t.Fatalf("%+v", methods)
	}
	if err := transfer.Submit(&kvmem.SubmitOptions{Pairs: []kvmem.BlockPair{{Source: 7, Destination: 1}}}); err != nil {
		t.Fatal(err)
	}
	if err := transfer.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
	sameBlock(t, source, 7, destination, 1)
	fails(t, transfer.Submit(&kvmem.SubmitOptions{Pairs: []kvmem.BlockPair{{Source: 8}}}), kvmem.ErrOutOfRange, "8")
	// A failed submit leaves the last run.
	if err := transfer.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
	_, err = kvmem.NewTransfer(source, nil, kvmem.TransferOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "destination")
	mismatched := kvmem.SubmitOptions{Pairs: []kvmem.BlockPair{{}}, Checksums: []uint32{1, 2}}
	_, err = kvmem.StartTransfer(source, destination, kvmem.TransferOptions{}, mismatched)
	fails(t, err, kvmem.ErrInvalidArgument, "one checksum per pair")
	fails(t, transfer.Prepare(mismatched), kvmem.ErrInvalidArgument, "one checksum per pair")
	fails(t, transfer.Submit(&mismatched), kvmem.ErrInvalidArgument, "one checksum per pair")
	succeeds(t, transfer.Submit(nil)) // the last blocks
	succeeds(t, transfer.Wait(patience(t)))
}

func TestTransferTables(t *testing.T) {
	source := build(t, config())
	wide := config()
	wide.PageSize, wide.NumBlocks = 8, 4
	destination := build(t, wide)
	fill(t, source, 9)
	transfer := need(kvmem.StartTransfer(source, destination, kvmem.TransferOptions{}, kvmem.SubmitOptions{
		SourceTable: &kvmem.BlockTable{Blocks: []uint32{4, 1}}, DestinationTable: &kvmem.BlockTable{Blocks: []uint32{3}}, NumTokens: 8,
	}))(t)
	defer transfer.Close()
	if err := transfer.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
	for token := uint64(0); token < 8; token++ {
		from := need(source.RowBytes([]uint32{4, 1}[token/4], 2, 1, token%4, 0))(t)
		to := need(destination.RowBytes(3, 2, 1, token, 0))(t)
		if string(from) != string(to) {
			t.Fatalf("token %d differs", token)
		}
	}
}

func TestTransferFails(t *testing.T) {
	source, destination := build(t, config()), build(t, config())
	fill(t, source, 1)
	queue := need(kvmem.NewQueue())(t)
	defer queue.Close()
	transfer := need(kvmem.StartTransfer(source, destination, kvmem.TransferOptions{Queue: queue}, kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 1, Destination: 1}}, Checksums: []uint32{0}, UserData: 7,
	}))(t)
	defer transfer.Close()
	fails(t, transfer.Wait(patience(t)), kvmem.ErrCorrupt, "CRC32C")
	completion := need(queue.Next(patience(t)))(t)
	fails(t, completion.Err, kvmem.ErrCorrupt, "CRC32C")
	if completion.UserData != 7 {
		t.Fatalf("%+v", completion)
	}
}

// Layers come before the end of their run, and memory that it releases later after that. Then the next run can start.
func TestKindsOfCompletions(t *testing.T) {
	source, destination := build(t, config()), build(t, config())
	queue := need(kvmem.NewQueue())(t)
	defer queue.Close()
	options := kvmem.TransferOptions{
		Flags: kvmem.TransferByLayer | kvmem.TransferReportRelease, Queue: queue, LayersPerCompletion: 3,
	}
	transfer := need(kvmem.NewTransfer(source, destination, options))(t)
	defer transfer.Close()
	for run := uint64(0); run < 100; run++ {
		succeeds(t, transfer.Submit(&kvmem.SubmitOptions{
			Pairs: []kvmem.BlockPair{{Source: 1, Destination: 2}}, UserData: run, RunTimeout: time.Duration(run % 2),
		}))
		hasMoved, hasEnded := false, false
		for released := false; !released; {
			completion := need(queue.Next(patience(t)))(t)
			isExpected := completion.UserData == run
			switch completion.Kind {
			case kvmem.CompletionLayersMoved:
				isExpected = isExpected && !hasMoved && !hasEnded && completion.NumLayers == 3
				hasMoved = true
			case kvmem.CompletionRunEnded:
				isExpected = isExpected && !hasEnded
				if completion.Err == nil {
					isExpected = isExpected && hasMoved && completion.Released
				} else {
					isExpected = isExpected && errors.Is(completion.Err, kvmem.ErrTimedOut)
				}
				hasEnded = true
			default:
				isExpected = isExpected && hasEnded && completion.Kind == kvmem.CompletionMemoryReleased
			}
			if !isExpected {
				t.Fatalf("%+v", completion)
			}
			released = completion.Released
		}
	}
	if completion, ok := queue.Poll(); ok {
		t.Fatalf("%+v", completion)
	}
	options.Queue = nil
	_, err := kvmem.NewTransfer(source, destination, options)
	fails(t, err, kvmem.ErrInvalidArgument, "Queue")
}

// Each completion arrives once, at the reader of the queue and at the goroutine that waits for its transfer.
func TestQueue(t *testing.T) {
	source, destination := build(t, config()), build(t, config())
	fill(t, source, 3)
	queue := need(kvmem.NewQueue())(t)
	const transfers, runs = 8, 20
	var group sync.WaitGroup
	for i := 0; i < transfers; i++ {
		transfer := need(kvmem.NewTransfer(source, destination, kvmem.TransferOptions{Queue: queue}))(t)
		succeeds(t, transfer.Prepare(kvmem.SubmitOptions{
			Pairs: []kvmem.BlockPair{{Source: uint32(i), Destination: uint32(i)}}, UserData: uint64(i),
		}))
		group.Add(1)
		go func(i int) {
			defer group.Done()
			defer transfer.Close()
			for run := 0; run < runs; run++ {
				err := transfer.Submit(&kvmem.SubmitOptions{
					Pairs: []kvmem.BlockPair{{Source: uint32(i), Destination: uint32(i)}}, UserData: uint64(i*runs + run),
				})
				if err == nil {
					err = transfer.Wait(patience(t))
				}
				if err != nil {
					t.Error(err)
				}
			}
		}(i)
	}
	seen := map[uint64]bool{}
	for len(seen) < transfers*runs {
		completion := need(queue.Next(patience(t)))(t)
		if seen[completion.UserData] || completion.Err != nil || completion.Bytes != 1536 {
			t.Fatalf("%+v", completion)
		}
		seen[completion.UserData] = true
	}
	group.Wait()
	if completion, ok := queue.Poll(); ok {
		t.Fatalf("%+v", completion)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := queue.Next(done)
	fails(t, err, kvmem.ErrCancelled, "no completion")
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// Close ends a goroutine in Next.
	ended := make(chan error)
	go func() {
		_, err := queue.Next(context.Background())
		ended <- err
	}()
	queue.Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	queue.Close()
	_, err = kvmem.NewTransfer(source, destination, kvmem.TransferOptions{Queue: queue})
	if !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
}

// Runs whose queue and transfer are closed still end, and Wait returns.
func TestCloseInFlight(t *testing.T) {
	source, destination := build(t, config()), build(t, config())
	queue := need(kvmem.NewQueue())(t)
	waits := make(chan error, 8)
	for i := 0; i < cap(waits); i++ {
		transfer := need(kvmem.NewTransfer(source, destination, kvmem.TransferOptions{Queue: queue}))(t)
		succeeds(t, transfer.Prepare(kvmem.SubmitOptions{Pairs: []kvmem.BlockPair{{Source: uint32(i), Destination: uint32(i)}}}))
		if err := transfer.Submit(nil); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer transfer.Close()
			waits <- transfer.Wait(context.Background())
		}()
	}
	queue.Close()
	for i := 0; i < cap(waits); i++ {
		if err := <-waits; err != nil && !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
	}
}

// When Wait returns because of its context, the run has ended.
func TestCancel(t *testing.T) {
	big := config()
	big.NumBlocks, big.InnerDim = 64, 1<<14
	source := build(t, big)
	file := need(kvmem.NewLayout(kvmem.LayoutOptions{
		Config: big, Memory: kvmem.DiskOptions{Path: filepath.Join(t.TempDir(), "blocks"), Flags: kvmem.DiskBuffered},
	}))(t)
	defer file.Close()
	pairs := make([]kvmem.BlockPair, big.NumBlocks)
	for i := range pairs {
		pairs[i] = kvmem.BlockPair{Source: uint32(i), Destination: uint32(i)}
	}
	transfer := need(kvmem.NewTransfer(source, file, kvmem.TransferOptions{Flags: kvmem.TransferByLayer}))(t)
	defer transfer.Close()
	succeeds(t, transfer.Prepare(kvmem.SubmitOptions{Pairs: pairs}))
	cancelled := 0
	for i := 0; i < 20; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		if err := transfer.Submit(nil); err != nil {
			t.Fatal(err)
		}
		cancel()
		err := transfer.Wait(ctx)
		ended, polled := transfer.Poll()
		if !ended {
			t.Fatal("the run has not ended")
		}
		switch {
		case err == nil && polled == nil: // all parts had started
		case errors.Is(err, context.Canceled) && errors.Is(err, kvmem.ErrCancelled) && errors.Is(polled, kvmem.ErrCancelled):
			cancelled++
		default:
			t.Fatal(err, polled)
		}
	}
	if cancelled == 0 {
		t.Fatal("no run was cancelled")
	}
	if err := transfer.Submit(nil); err != nil {
		t.Fatal(err)
	}
	if err := transfer.WaitLayers(patience(t), 2); err != nil {
		t.Fatal(err)
	}
	if layers := need(transfer.Info())(t).LayersMoved; layers < 2 {
		t.Fatal(layers)
	}
	fails(t, transfer.WaitLayers(patience(t), 4), kvmem.ErrOutOfRange, "4")
	if err := transfer.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
}

func TestLog(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	find := func(part string) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(lines, "\n"), part)
	}
	panicked := make(chan any, 1)
	kvmem.SetPanicHandler(func(value any, stack []byte) { panicked <- value })
	defer kvmem.SetPanicHandler(nil)
	err := kvmem.SetLog(kvmem.LogDebug, func(level kvmem.LogLevel, target, message string) {
		mu.Lock()
		first := len(lines) == 0
		lines = append(lines, fmt.Sprint(level, " ", target, ": ", message))
		mu.Unlock()
		if first {
			panic("in the log")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	need(kvmem.NewSystemRegion(kvmem.SystemOptions{Size: 4096}))(t).Close()
	if err := kvmem.SetLog(kvmem.LogDebug, func(kvmem.LogLevel, string, string) {}); err != nil {
		t.Fatal(err)
	}
	if !find("region #") {
		t.Fatal(lines)
	}
	if value := <-panicked; value != "in the log" {
		t.Fatal(value)
	}
	if err := kvmem.SetLog(kvmem.LogOff, nil); err != nil {
		t.Fatal(err)
	}
	fails(t, kvmem.SetLog(99, func(kvmem.LogLevel, string, string) {}), kvmem.ErrInvalidArgument, "99")
}

func TestParts(t *testing.T) {
	combine := func() *kvmem.Layout {
		scales := config()
		scales.InnerDim = 2
		whole := need(kvmem.CombineLayouts([]kvmem.LayoutPart{
			{Name: "scales", Layout: build(t, scales)}, {Name: "data", Layout: build(t, config())},
		}))(t)
		t.Cleanup(func() { whole.Close() })
		return whole
	}
	source, destination := combine(), combine()
	if info := need(source.Info())(t); len(info.PartNames) != 2 || info.PartNames[0] != "data" {
		t.Fatalf("%+v", info)
	}
	from, to := need(source.Part("data"))(t), need(destination.Part("data"))(t)
	defer from.Close()
	defer to.Close()
	fill(t, from, 6)
	transfer := need(kvmem.StartTransfer(source, destination, kvmem.TransferOptions{Parts: []string{"data"}}, kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 3, Destination: 4}},
	}))(t)
	defer transfer.Close()
	if err := transfer.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
	sameBlock(t, from, 3, to, 4)
	_, err := source.Part("nothing")
	fails(t, err, kvmem.ErrNotFound, "nothing")
	_, err = source.Block(0, 0, 0)
	fails(t, err, kvmem.ErrUnsupported, "part")
	_, err = kvmem.CombineLayouts(nil)
	fails(t, err, kvmem.ErrInvalidArgument, "")
}

func TestAccessesOfARunInFlight(t *testing.T) {
	big := config()
	big.NumBlocks, big.NumLayers, big.InnerDim = 64, 64, 1024
	source, destination := build(t, big), build(t, big)
	transfer := need(kvmem.NewTransfer(source, destination, kvmem.TransferOptions{}))(t)
	defer transfer.Close()
	var pairs []kvmem.BlockPair
	for block := uint32(0); block < 64; block++ {
		pairs = append(pairs, kvmem.BlockPair{Source: block, Destination: block})
	}
	var found []kvmem.BlockAccess
	for len(found) == 0 { // until the run is in flight when that is asked
		succeeds(t, transfer.Submit(&kvmem.SubmitOptions{Pairs: pairs}))
		found = need(source.Accesses([]uint32{9, 3, 9}))(t)
		succeeds(t, transfer.Wait(patience(t)))
	}
	for i, block := range []uint32{3, 9} {
		if expected := (kvmem.BlockAccess{Block: block, Accessor: kvmem.AccessorRun, Reads: true}); len(found) != 2 || found[i] != expected {
			t.Fatalf("%+v are the accesses of a run that reads all blocks", found)
		}
	}
	if after := need(source.Accesses([]uint32{3, 9}))(t); len(after) != 0 {
		t.Fatalf("%+v are accesses after the run", after)
	}
}

func TestLeases(t *testing.T) {
	layout := build(t, config())
	reader := need(layout.Lease([]uint32{2, 1, 2}, kvmem.LeaseOptions{}))(t)
	defer reader.Close()
	found := need(layout.Accesses([]uint32{0, 1, 2}))(t)
	for i, block := range []uint32{1, 2} {
		expected := kvmem.BlockAccess{
			Block: block, Accessor: kvmem.AccessorLease, Reads: true, Remaining: kvmem.NoEnd, PID: uint32(os.Getpid()),
		}
		if len(found) != 2 || found[i] != expected {
			t.Fatalf("%+v are the accesses of a lease", found)
		}
	}
	succeeds(t, reader.Renew(time.Hour))
	if remaining := need(reader.Remaining())(t); remaining <= 0 || remaining > time.Hour {
		t.Fatalf("%v remain", remaining)
	}
	writer := need(layout.Lease([]uint32{0}, kvmem.LeaseOptions{Flags: kvmem.LeaseWrites, Duration: time.Hour}))(t)
	if found = need(layout.Accesses([]uint32{0}))(t); len(found) != 1 || !found[0].Writes || found[0].Remaining > time.Hour+time.Millisecond {
		t.Fatalf("%+v are the accesses of a lease to write", found)
	}
	succeeds(t, writer.Close())
	succeeds(t, reader.Close())
	if found = need(layout.Accesses([]uint32{0, 1, 2}))(t); len(found) != 0 {
		t.Fatalf("%+v are accesses after the leases", found)
	}
	_, err := layout.Lease(nil, kvmem.LeaseOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "num_blocks")
}
