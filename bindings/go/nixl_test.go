// SPDX-License-Identifier: Apache-2.0

package kvmem_test

import (
	"context"
	"errors"
	"os"
	"testing"

	kvmem "kvmem/bindings/go"
)

func agent(t *testing.T, name string) *kvmem.Agent {
	t.Helper()
	return agentWith(t, name, 0)
}

func agentWith(t *testing.T, name string, flags kvmem.AgentFlags) *kvmem.Agent {
	t.Helper()
	return agentOf(t, name, kvmem.AgentOptions{Flags: flags})
}

func agentOf(t *testing.T, name string, options kvmem.AgentOptions) *kvmem.Agent {
	t.Helper()
	a, err := kvmem.NewAgent(name, options)
	if errors.Is(err, kvmem.ErrUnavailableNIXL) && os.Getenv("KVMEM_NIXL_LIBRARY") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	if err := a.CreateBackend("UCX", map[string]string{}); err != nil {
		t.Fatal(err)
	}
	return a
}

// Two agents of one process: registrations, metadata, a transfer with a notification.
func TestNIXL(t *testing.T) {
	owner, reader := agent(t, "owner"), agent(t, "reader")
	if owner.Name() != "owner" || need(kvmem.NIXLPath())(t) == "" {
		t.Fatal(owner.Name())
	}
	fails(t, owner.CreateBackend("nothing", nil), kvmem.ErrNotFound, "nothing")
	size := need(config().Requirements())(t).RegionSize
	region := need(kvmem.NewSystemRegion(kvmem.SystemOptions{Size: size}))(t)
	defer region.Close()
	registration := need(region.Register(owner))(t)
	defer registration.Close()
	if info := need(registration.Info())(t); !info.Registered || info.MemoryType != kvmem.MemoryDRAM {
		t.Fatalf("%+v", info)
	}
	if name := need(region.AgentName(0))(t); name != "owner" {
		t.Fatal(name)
	}
	_, err := region.Register(owner)
	fails(t, err, kvmem.ErrAlreadyExists, "owner")
	cache := need(kvmem.NewLayout(kvmem.LayoutOptions{
		Config: config(), Registrations: []*kvmem.Registration{registration},
	}))(t)
	defer cache.Close()
	fill(t, cache, 5)
	local := need(kvmem.NewLayout(kvmem.LayoutOptions{Config: config(), Agent: reader, Memory: kvmem.SystemOptions{}}))(t)
	defer local.Close()

	fails(t, reader.CheckPeer("owner"), kvmem.ErrNotFound, "owner")
	if name := need(reader.LoadPeer(need(owner.Metadata())(t)))(t); name != "owner" {
		t.Fatal(name)
	}
	if err := reader.CheckPeer("owner"); err != nil {
		t.Fatal(err)
	}
	remote := need(reader.ImportLayout(need(cache.Export())(t)))(t)
	defer remote.Close()
	if name := need(remote.Info())(t).Agent; name != "owner" {
		t.Fatal(name)
	}
	_, err = remote.Bytes(0, 0, 0)
	fails(t, err, kvmem.ErrUnsupported, "host memory")
	transfer := need(kvmem.StartTransfer(remote, local, kvmem.TransferOptions{}, kvmem.SubmitOptions{
		Pairs: []kvmem.BlockPair{{Source: 6, Destination: 2}}, Notification: []byte("block 6 is read"),
	}))(t)
	defer transfer.Close()
	if err := transfer.Wait(patience(t)); err != nil {
		t.Fatal(err)
	}
	sameBlock(t, cache, 6, local, 2)
	messages := need(owner.TakeNotifications(patience(t)))(t)
	if len(messages) != 1 || messages[0].Agent != "reader" || string(messages[0].Message) != "block 6 is read" {
		t.Fatalf("%v", messages)
	}
	if err := reader.Notify("owner", []byte("bye")); err != nil {
		t.Fatal(err)
	}
	if messages := need(owner.TakeNotifications(patience(t)))(t); string(messages[0].Message) != "bye" {
		t.Fatalf("%v", messages)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := owner.TakeNotifications(done); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	fails(t, registration.Deregister(), kvmem.ErrBusy, "")

	transfer.Close()
	if err := reader.InvalidatePeer("owner"); err != nil {
		t.Fatal(err)
	}
	_, err = kvmem.StartTransfer(remote, local, kvmem.TransferOptions{}, kvmem.SubmitOptions{Pairs: []kvmem.BlockPair{{}}})
	fails(t, err, kvmem.ErrStale, "")
	fails(t, owner.SendMetadata("127.0.0.1", 1), kvmem.ErrInvalidState, "listen")
	fails(t, owner.FetchPeer(patience(t), "reader", "127.0.0.1", 1), kvmem.ErrInvalidState, "listen")
}
