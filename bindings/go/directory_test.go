// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kvmem "kvmem/bindings/go"
)

func directory(t *testing.T, folder string) *kvmem.Directory {
	t.Helper()
	d := need(kvmem.NewDirectory(kvmem.DirectoryOptions{Folder: folder}))(t)
	t.Cleanup(func() { d.Close() })
	return d
}

// event takes the next event, which must be the only one.
func event(t *testing.T, d *kvmem.Directory, kind kvmem.DirectoryChange, version uint64) kvmem.DirectoryEvent {
	t.Helper()
	events := need(d.TakeEvents(patience(t)))(t)
	if len(events) != 1 || events[0].Kind != kind || events[0].Agent != "publisher" || events[0].Version != version ||
		events[0].Err != nil {
		t.Fatalf("%+v", events)
	}
	return events[0]
}

func succeeds(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An agent is published, found, watched and withdrawn.
func TestDirectory(t *testing.T) {
	ctx := patience(t)
	folder := filepath.Join(t.TempDir(), "cluster")
	a, reader := agent(t, "publisher"), agent(t, "reader")
	cache := need(kvmem.NewLayout(kvmem.LayoutOptions{Config: config(), Agent: a, Memory: kvmem.SystemOptions{}}))(t)
	defer cache.Close()
	fill(t, cache, 5)
	publisher, watcher := directory(t, folder), directory(t, folder)
	queue := need(kvmem.NewQueue())(t)
	defer queue.Close()
	succeeds(t, watcher.Watch(ctx, "publisher"))
	succeeds(t, watcher.ReportEvents(queue, 7))
	_, err := watcher.LookUp(ctx, "publisher")
	fails(t, err, kvmem.ErrNotFound, "publisher")
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	_, err = watcher.WaitFor(soon, "publisher")
	cancel()
	fails(t, err, kvmem.ErrTimedOut, "")
	succeeds(t, publisher.Publish(ctx, a, kvmem.NamedLayout{Name: "cache", Layout: cache}))
	awaited := need(watcher.WaitFor(ctx, "publisher"))(t)
	awaited.Close()
	closed := agent(t, "closed")
	closed.Close()
	_, err = watcher.Connect(ctx, closed, "publisher")
	fails(t, err, kvmem.ErrInvalidArgument, "closed")
	connected := need(watcher.Connect(ctx, reader, "publisher"))(t)
	connected.Close()
	succeeds(t, reader.CheckPeer("publisher"))
	if completion := need(queue.Next(ctx))(t); completion.UserData != 7 || completion.Err != nil {
		t.Fatalf("%+v", completion)
	}
	succeeds(t, watcher.ReportEvents(nil, 0))
	first := event(t, watcher, kvmem.DirectoryPublished, 1)

	entry := need(watcher.LookUp(ctx, "publisher"))(t)
	defer entry.Close()
	succeeds(t, watcher.Check(ctx, entry))
	info := need(entry.Info())(t)
	if info.Agent != "publisher" || info.Incarnation != first.Incarnation || info.Version != 1 || len(info.Metadata) == 0 ||
		len(info.Layouts) != 1 || info.Layouts[0].Name != "cache" ||
		string(info.Layouts[0].Descriptor) != string(need(cache.Export())(t)) {
		t.Fatalf("%+v", info)
	}
	succeeds(t, entry.Load(reader))
	opening := kvmem.OpenOptions{Flags: kvmem.OpenRemote, Agent: reader}
	remote := need(entry.OpenLayout(ctx, "cache", opening))(t)
	defer remote.Close()
	_, err = entry.OpenLayout(ctx, "other", opening)
	fails(t, err, kvmem.ErrNotFound, "cache")
	local := need(kvmem.NewLayout(kvmem.LayoutOptions{Config: config(), Agent: reader, Memory: kvmem.SystemOptions{}}))(t)
	defer local.Close()
	transfer := need(kvmem.StartTransfer(remote, local, kvmem.TransferOptions{}, kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 6, Destination: 2}},
	}))(t)
	defer transfer.Close()
	succeeds(t, transfer.Wait(ctx))
	sameBlock(t, cache, 6, local, 2)

	succeeds(t, publisher.Publish(ctx, a))
	event(t, watcher, kvmem.DirectoryUpdated, 2)
	fails(t, watcher.Check(ctx, entry), kvmem.ErrStale, "version 2")
	succeeds(t, publisher.Withdraw(ctx, "publisher"))
	event(t, watcher, kvmem.DirectoryWithdrawn, 2)
	fails(t, publisher.Withdraw(ctx, "publisher"), kvmem.ErrNotFound, "not published")
	succeeds(t, publisher.Publish(ctx, a))
	publisher.Close() // withdraws
	fails(t, watcher.Check(ctx, entry), kvmem.ErrNotFound, "publisher")
	fails(t, publisher.Publish(ctx, a), kvmem.ErrInvalidArgument, "closed")
}

// The context ends what waits.
func TestDirectoryWaits(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cluster")
	d := directory(t, folder)
	succeeds(t, d.WatchAll(patience(t)))
	done, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := d.TakeEvents(done)
	fails(t, err, kvmem.ErrCancelled, "")
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	late, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	_, err = d.TakeEvents(late)
	fails(t, err, kvmem.ErrTimedOut, "")
	fails(t, d.Unwatch(patience(t), "a"), kvmem.ErrNotFound, "'a'")
	succeeds(t, d.UnwatchAll(patience(t)))
	fails(t, d.UnwatchAll(patience(t)), kvmem.ErrNotFound, "")
}

// cancelledInWait is cancelled when a call waits for it.
type cancelledInWait struct {
	context.Context
	cancel func()
}

func (c cancelledInWait) Done() <-chan struct{} {
	c.cancel()
	return c.Context.Done()
}

// A wait that was cancelled does not keep its directory open.
func TestCancelledWaitEnds(t *testing.T) {
	before := need(kvmem.ReadStatistics())(t).NumDirectories
	d := directory(t, filepath.Join(t.TempDir(), "cluster"))
	cancellable, cancel := context.WithCancel(context.Background())
	_, err := d.WaitFor(cancelledInWait{cancellable, cancel}, "publisher")
	fails(t, err, kvmem.ErrCancelled, "")
	d.Close()
	for limit := patience(t); need(kvmem.ReadStatistics())(t).NumDirectories > before; time.Sleep(time.Millisecond) {
		succeeds(t, limit.Err())
	}
}

func TestDirectoryArguments(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cluster")
	refused := []struct {
		options kvmem.DirectoryOptions
		message string
	}{
		{kvmem.DirectoryOptions{}, "folder or endpoints"},
		{kvmem.DirectoryOptions{Folder: folder, Prefix: "x"}, "prefix"},
		{kvmem.DirectoryOptions{Folder: "a\x00b"}, "NUL"},
		{kvmem.DirectoryOptions{Folder: folder, Lease: time.Millisecond}, "whole seconds"},
		{kvmem.DirectoryOptions{Folder: folder, Lease: 9 * time.Second}, "lease_seconds"},
		{kvmem.DirectoryOptions{Endpoints: []string{"http://user:word@127.0.0.1:1"}}, "'@'"},
		{kvmem.DirectoryOptions{Endpoints: []string{"https://127.0.0.1:1"}}, "ca_file"},
		{kvmem.DirectoryOptions{Endpoints: []string{"http://127.0.0.1:1"}, CertificateFile: "x"}, "key_file"},
		{kvmem.DirectoryOptions{Endpoints: []string{"http://127.0.0.1:1"}, User: "x"}, "password"},
	}
	for _, one := range refused {
		_, err := kvmem.NewDirectory(one.options)
		fails(t, err, kvmem.ErrInvalidArgument, one.message)
		if strings.Contains(err.Error(), "word@") {
			t.Fatal(err)
		}
	}
	d := directory(t, folder)
	fails(t, d.Publish(patience(t), nil), kvmem.ErrInvalidArgument, "agent")
	fails(t, d.Check(patience(t), nil), kvmem.ErrInvalidArgument, "entry")
	fails(t, d.Watch(patience(t), "a\x00b"), kvmem.ErrInvalidArgument, "NUL")
	_, err := d.LookUp(patience(t), "a\x00b")
	fails(t, err, kvmem.ErrInvalidArgument, "NUL")
	_, err = d.LookUp(patience(t), "")
	fails(t, err, kvmem.ErrInvalidArgument, "empty")
	var none *kvmem.Directory
	_, err = none.TakeEvents(patience(t))
	fails(t, err, kvmem.ErrInvalidArgument, "nil")
}

// A layout that is published with a broker is mapped.
func TestOpenLayout(t *testing.T) {
	ctx := patience(t)
	a := agent(t, "publisher")
	cache := need(kvmem.NewLayout(kvmem.LayoutOptions{
		Config: config(), Agent: a, Memory: kvmem.SystemOptions{Flags: kvmem.SystemShareable},
	}))(t)
	defer cache.Close()
	broker := need(kvmem.NewBroker(kvmem.BrokerOptions{Path: filepath.Join(t.TempDir(), "broker")}))(t)
	defer broker.Close()
	d := directory(t, filepath.Join(t.TempDir(), "cluster"))
	named := kvmem.NamedLayout{Name: "cache", Layout: cache, Broker: broker, Share: &kvmem.ShareOptions{}}
	fails(t, d.Publish(ctx, a, kvmem.NamedLayout{Name: "cache"}), kvmem.ErrInvalidArgument, "nil")
	succeeds(t, d.Publish(ctx, a, named, kvmem.NamedLayout{Name: "plain", Layout: cache}))
	entry := need(d.LookUp(ctx, "publisher"))(t)
	defer entry.Close()
	opened := need(entry.OpenLayout(ctx, "cache", kvmem.OpenOptions{Flags: kvmem.OpenReadWrite}))(t)
	defer opened.Close()
	if info := need(opened.Info())(t); info.Locality != kvmem.LocalityLocal {
		t.Fatalf("%+v", info)
	}
	_, err := entry.OpenLayout(ctx, "plain", kvmem.OpenOptions{})
	fails(t, err, kvmem.ErrUnsupported, "with a broker")
}
