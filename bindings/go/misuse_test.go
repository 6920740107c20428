// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	kvmem "kvmem/bindings/go"
)

// Calls on objects that are nil, or that this package has not created, fail.
func TestNilObjects(t *testing.T) {
	ctx := patience(t)
	for _, transfer := range []*kvmem.Transfer{nil, {}} {
		fails(t, transfer.Submit(nil), kvmem.ErrInvalidArgument, "nil")
		fails(t, transfer.Submit(&kvmem.SubmitOptions{}), kvmem.ErrInvalidArgument, "nil")
		fails(t, transfer.SubmitOnStream(nil, nil), kvmem.ErrInvalidArgument, "nil")
		fails(t, transfer.SubmitOnStream(&kvmem.SubmitOptions{}, nil), kvmem.ErrInvalidArgument, "nil")
		fails(t, transfer.Wait(ctx), kvmem.ErrInvalidArgument, "nil")
		fails(t, transfer.WaitLayers(ctx, 1), kvmem.ErrInvalidArgument, "nil")
		succeeds(t, transfer.Close())
	}
	for _, request := range []*kvmem.Request{nil, {}} {
		fails(t, request.Post(), kvmem.ErrInvalidArgument, "nil")
		fails(t, request.Wait(ctx), kvmem.ErrInvalidArgument, "nil")
		succeeds(t, request.Close())
	}
	for _, queue := range []*kvmem.Queue{nil, {}} {
		_, err := queue.Next(ctx)
		fails(t, err, kvmem.ErrInvalidArgument, "nil")
		if _, ok := queue.Poll(); ok {
			t.Fatal("a completion")
		}
		succeeds(t, queue.Close())
	}
}

func TestPasswordIsNotPrinted(t *testing.T) {
	_, err := kvmem.NewDirectory(kvmem.DirectoryOptions{
		Endpoints: []string{"http://127.0.0.1:1"}, User: "user", Password: "secret\x00",
	})
	fails(t, err, kvmem.ErrInvalidArgument, "NUL")
	if strings.Contains(err.Error(), "secret") {
		t.Fatal("the message has the password")
	}
}

func TestNegativeDelays(t *testing.T) {
	for _, options := range []kvmem.AgentOptions{{ProgressDelay: -time.Second}, {ListenDelay: -1}} {
		_, err := kvmem.NewAgent("negative", options)
		fails(t, err, kvmem.ErrInvalidArgument, "negative")
	}
}

func TestManyParameters(t *testing.T) {
	parameters := map[string]string{}
	for i := 0; i <= 1<<16; i++ {
		parameters[fmt.Sprint(i)] = ""
	}
	fails(t, agent(t, "parameters").CreateBackend("nothing", parameters), kvmem.ErrNotFound, "nothing")
}

// Numbers that do not fit in a file descriptor are not those of other files.
func TestLargeFileDescriptors(t *testing.T) {
	share := need(shareable(t).Share(kvmem.ShareOptions{}))(t)
	defer share.Close()
	const beyond = 1 << 32
	fds := need(share.FDs())(t)
	fds[0] += beyond
	_, err := kvmem.NewReceivedShare(need(share.Data())(t), fds)
	fails(t, err, kvmem.ErrInvalidArgument, "-1")
	pair := sockets(t)
	fails(t, share.Send(patience(t), pair[0]+beyond), kvmem.ErrInvalidArgument, "-1")
	_, err = kvmem.ReceiveShare(patience(t), pair[1]+beyond)
	fails(t, err, kvmem.ErrInvalidArgument, "-1")
}

// With a context that is done, a call has no effect.
func TestDoneContext(t *testing.T) {
	a, d := agent(t, "done"), directory(t, t.TempDir())
	succeeds(t, d.Publish(patience(t), a))
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for i := 0; i < 20; i++ {
		if err := d.Publish(done, a); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	// Calls of one directory are in order, so this one follows those that were made.
	succeeds(t, d.Publish(patience(t), a))
	entry := need(d.LookUp(patience(t), "done"))(t)
	defer entry.Close()
	if version := need(entry.Info())(t).Version; version != 2 {
		t.Fatal(version)
	}
}

// The socket of a share that was sent can be used, whenever the context is done.
func TestSentShare(t *testing.T) {
	share := need(shareable(t).Share(kvmem.ShareOptions{}))(t)
	defer share.Close()
	for i := 0; i < 20000; i++ {
		pair := need(syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
		ctx, cancel := context.WithCancel(context.Background())
		go func(steps int) {
			for ; steps > 0; steps-- {
				runtime.Gosched()
			}
			cancel()
		}(i % 200)
		err := share.Send(ctx, pair[0])
		if err == nil {
			_, err = syscall.Write(pair[0], []byte{0})
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		syscall.Close(pair[0])
		syscall.Close(pair[1])
	}
}

// Wait for a run that has ended does not cancel the run after it.
func TestWaitCancelsItsRun(t *testing.T) {
	large := config()
	large.NumBlocks, large.InnerDim = 64, 1<<12
	source := build(t, large)
	file := need(kvmem.NewLayout(kvmem.LayoutOptions{
		Config: large, Memory: kvmem.DiskOptions{Flags: kvmem.DiskBuffered},
	}))(t)
	defer file.Close()
	pairs := make([]kvmem.BlockPair, large.NumBlocks)
	for i := range pairs {
		pairs[i] = kvmem.BlockPair{Source: uint32(i), Destination: uint32(i)}
	}
	transfer := need(kvmem.NewTransfer(source, file, kvmem.TransferOptions{Flags: kvmem.TransferByLayer}))(t)
	defer transfer.Close()
	succeeds(t, transfer.Prepare(kvmem.SubmitOptions{Pairs: pairs}))
	done, cancel := context.WithCancel(context.Background())
	cancel()
	const waiters = 8
	for i := 0; i < 1500; i++ {
		ready, results := make(chan struct{}), make(chan error)
		for w := 0; w < waiters; w++ {
			go func() {
				ready <- struct{}{}
				results <- transfer.Wait(done)
			}()
			<-ready
		}
		succeeds(t, transfer.Submit(nil))
		err := transfer.Wait(patience(t))
		cancelled := false
		for w := 0; w < waiters; w++ {
			// Before the first run, there is nothing to wait for.
			if result := <-results; errors.Is(result, kvmem.ErrCancelled) {
				cancelled = true
			}
		}
		if err != nil && !cancelled {
			t.Fatal("a run was cancelled by calls that waited for the run before it: ", err)
		}
	}
}

// WaitLayers returns if the run has ended because its peer made no progress, which has the status of a timeout.
func TestStalledLayers(t *testing.T) {
	t.Setenv("UCX_TLS", "tcp") // a read needs the owner, which makes no progress
	options := kvmem.AgentOptions{Flags: kvmem.AgentNoProgressThread, ProgressDelay: time.Hour}
	owner, reader := agentOf(t, "owner", options), agent(t, "reader")
	large := config()
	large.NumBlocks, large.InnerDim = 256, 1<<13
	layout := func(a *kvmem.Agent) *kvmem.Layout {
		l := need(kvmem.NewLayout(kvmem.LayoutOptions{Config: large, Agent: a, Memory: kvmem.SystemOptions{}}))(t)
		t.Cleanup(func() { l.Close() })
		return l
	}
	cache, local := layout(owner), layout(reader)
	need(reader.LoadPeer(need(owner.Metadata())(t)))(t)
	remote := need(reader.ImportLayout(need(cache.Export())(t)))(t)
	defer remote.Close()
	pairs := make([]kvmem.BlockPair, large.NumBlocks)
	for i := range pairs {
		pairs[i] = kvmem.BlockPair{Source: uint32(i), Destination: uint32(i)}
	}
	transfer := need(kvmem.StartTransfer(remote, local, kvmem.TransferOptions{StallTimeout: 100 * time.Millisecond, Flags: kvmem.TransferByLayer}, kvmem.SubmitOptions{
		Pairs: pairs,
	}))(t)
	defer transfer.Close()
	err := transfer.WaitLayers(context.Background(), 0)
	fails(t, err, kvmem.ErrTimedOut, "owner")
	fails(t, transfer.Wait(patience(t)), kvmem.ErrTimedOut, "owner")
	// A run that has ended at its limit may still write to its blocks, so each has others.
	limited := need(kvmem.StartTransfer(remote, layout(reader), kvmem.TransferOptions{}, kvmem.SubmitOptions{
		Pairs: pairs, RunTimeout: 100 * time.Millisecond,
	}))(t)
	defer limited.Close()
	fails(t, limited.Wait(patience(t)), kvmem.ErrTimedOut, "with agent 'owner' was not complete after 100 ms")
	own := need(kvmem.NewTransfer(remote, layout(reader), kvmem.TransferOptions{}))(t)
	defer own.Close()
	succeeds(t, own.Prepare(kvmem.SubmitOptions{Pairs: pairs}))
	if err := own.Submit(&kvmem.SubmitOptions{Pairs: pairs, RunTimeout: 90 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	fails(t, own.Wait(patience(t)), kvmem.ErrTimedOut, "with agent 'owner' was not complete after 90 ms")
}
