// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	kvmem "kvmem/bindings/go"
)

func shareable(t *testing.T) *kvmem.Layout {
	t.Helper()
	layout, err := kvmem.NewLayout(kvmem.LayoutOptions{
		Config: config(), Memory: kvmem.SystemOptions{Flags: kvmem.SystemShareable},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { layout.Close() })
	return layout
}

func sockets(t *testing.T) [2]int {
	t.Helper()
	pair := need(syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))(t)
	t.Cleanup(func() { syscall.Close(pair[0]); syscall.Close(pair[1]) })
	return pair
}

func TestShare(t *testing.T) {
	layout := shareable(t)
	fill(t, layout, 4)
	share := need(layout.Share(kvmem.ShareOptions{Flags: kvmem.ShareReadOnly}))(t)
	defer share.Close()
	info := need(share.Info())(t)
	if info.Object != kvmem.SharedLayout || !info.ReadOnly || info.Tier != kvmem.TierSystem || info.NumFDs != 2 {
		t.Fatalf("%+v", info)
	}
	pair := sockets(t)
	if err := share.Send(patience(t), pair[0]); err != nil {
		t.Fatal(err)
	}
	received := need(kvmem.ReceiveShare(patience(t), pair[1]))(t)
	defer received.Close()
	opened := need(received.OpenLayout(kvmem.OpenOptions{Flags: kvmem.OpenMappedOnly}))(t)
	defer opened.Close()
	sameBlock(t, layout, 3, opened, 3)
	_, err := received.OpenRegion(kvmem.OpenOptions{})
	fails(t, err, kvmem.ErrInvalidArgument, "layout")

	// The same over a channel of the caller.
	data := need(share.Data())(t)
	fds := need(share.FDs())(t)
	if len(fds) != 2 {
		t.Fatal(fds)
	}
	again := need(kvmem.NewReceivedShare(data, fds))(t)
	defer again.Close()
	need(again.OpenLayout(kvmem.OpenOptions{}))(t).Close()
	data[len(data)/2] ^= 0xff
	_, err = kvmem.NewReceivedShare(data, fds)
	fails(t, err, kvmem.ErrCorrupt, "")

	region := need(layout.Region(0))(t)
	defer region.Close()
	whole := need(region.Share(kvmem.ShareOptions{}))(t)
	defer whole.Close()
	mapped := need(whole.OpenRegion(kvmem.OpenOptions{Flags: kvmem.OpenReadOnly}))(t)
	defer mapped.Close()
	if memory := need(mapped.Bytes())(t); string(memory[:8]) != string(need(region.Bytes())(t)[:8]) {
		t.Fatal("other memory")
	}
}

// A receiver that waits returns when its context is done, and the socket is shut down.
func TestReceiveCancelled(t *testing.T) {
	pair := sockets(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := kvmem.ReceiveShare(ctx, pair[1])
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	past, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	_, err := kvmem.ReceiveShare(past, pair[0])
	fails(t, err, kvmem.ErrTimedOut, "")
	soon, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = kvmem.ReceiveShare(soon, sockets(t)[0])
	if fails(t, err, kvmem.ErrTimedOut, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestBroker(t *testing.T) {
	layout := shareable(t)
	share := need(layout.Share(kvmem.ShareOptions{}))(t)
	path := filepath.Join(t.TempDir(), "broker")
	broker := need(kvmem.NewBroker(kvmem.BrokerOptions{Path: path}))(t)
	defer broker.Close()
	token := need(broker.Publish("cache", share, kvmem.PublishOptions{MaxUses: 1}))(t)
	share.Close()
	fetch := kvmem.FetchOptions{Path: path, Name: "cache", Token: token}
	fetched := need(kvmem.FetchShare(patience(t), fetch))(t)
	need(fetched.OpenLayout(kvmem.OpenOptions{}))(t).Close()
	fetched.Close()
	_, err := kvmem.FetchShare(patience(t), fetch)
	fails(t, err, kvmem.ErrPermissionDenied, "")
	fetch.Token = need(broker.Grant("cache", kvmem.PublishOptions{Flags: kvmem.PublishReadOnly}))(t)
	fetched = need(kvmem.FetchShare(patience(t), fetch))(t)
	if !need(fetched.Info())(t).ReadOnly {
		t.Fatal("not read-only")
	}
	fetched.Close()
	if info := need(broker.Info())(t); info.Publications != 1 || info.Granted != 2 || info.Refused != 1 {
		t.Fatalf("%+v", info)
	}
	if err := broker.Unpublish("cache"); err != nil {
		t.Fatal(err)
	}
	fails(t, broker.Unpublish("cache"), kvmem.ErrNotFound, "cache")
	_, err = kvmem.NewBroker(kvmem.BrokerOptions{Path: path})
	fails(t, err, kvmem.ErrAlreadyExists, "")
}
