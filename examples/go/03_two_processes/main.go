// SPDX-License-Identifier: Apache-2.0

// A prefill process owns a KV cache. A decode process reads blocks of it over NIXL, maps the cache through a share, offloads
// blocks to a file and restores them. Every byte is verified.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	kvmem "kvmem/bindings/go"
)

var shape = kvmem.LayoutConfig{
	NumBlocks: 16, NumLayers: 4, OuterDim: 2, PageSize: 16, InnerDim: 8 * 128, DtypeWidth: 2,
	Order: kvmem.OrderFullyContiguous,
}

// pairs of blocks that decode reads.
var pairs = []kvmem.BlockPair{{Source: 3, Destination: 11}, {Source: 7, Destination: 0}, {Source: 8, Destination: 1}}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	run := decode
	if len(os.Args) > 1 && os.Args[1] == "prefill" {
		run = prefill
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newAgent(name string) (*kvmem.Agent, error) {
	agent, err := kvmem.NewAgent(name, kvmem.AgentOptions{})
	if err != nil {
		return nil, err
	}
	return agent, agent.CreateBackend("UCX", nil)
}

// element is what prefill writes to a byte of a block.
func element(block uint32, layer, outer uint64, i int) byte {
	return byte(int(block)*31 + int(layer)*7 + int(outer)*3 + i)
}

// prefill registers memory, builds a layout on it, fills it, and sends decode what it needs to access it.
func prefill(ctx context.Context) error {
	socket := os.NewFile(3, "socket to decode")
	agent, err := newAgent("prefill")
	if err != nil {
		return err
	}
	defer agent.Close()
	requirements, err := shape.Requirements()
	if err != nil {
		return err
	}
	region, err := kvmem.NewSystemRegion(kvmem.SystemOptions{
		Size: requirements.TotalSize, Flags: kvmem.SystemShareable,
	})
	if err != nil {
		return err
	}
	defer region.Close()
	registration, err := region.Register(agent)
	if err != nil {
		return err
	}
	defer registration.Close()
	cache, err := kvmem.NewLayout(kvmem.LayoutOptions{
		Config: shape, Registrations: []*kvmem.Registration{registration},
	})
	if err != nil {
		return err
	}
	defer cache.Close()
	for block := uint32(0); block < uint32(shape.NumBlocks); block++ {
		for layer := uint64(0); layer < shape.NumLayers; layer++ {
			for outer := uint64(0); outer < shape.OuterDim; outer++ {
				memory, err := cache.Bytes(block, layer, outer)
				if err != nil {
					return err
				}
				for i := range memory {
					memory[i] = element(block, layer, outer, i)
				}
			}
		}
	}

	// Two byte slices make blocks readable by a peer: the metadata of the agent, and the descriptor of the layout.
	metadata, err := agent.Metadata()
	if err != nil {
		return err
	}
	descriptor, err := cache.Export()
	if err != nil {
		return err
	}
	for _, message := range [][]byte{metadata, descriptor} {
		if err := send(socket, message); err != nil {
			return err
		}
	}
	share, err := cache.Share(kvmem.ShareOptions{Flags: kvmem.ShareReadOnly})
	if err != nil {
		return err
	}
	defer share.Close()
	if err := share.Send(ctx, int(socket.Fd())); err != nil {
		return err
	}

	// The memory must exist until decode has reported that it has read it.
	_, err = agent.TakeNotifications(ctx)
	return err
}

func decode(ctx context.Context) error {
	socket, child, err := start("prefill")
	if err != nil {
		return err
	}
	agent, err := newAgent("decode")
	if err != nil {
		return err
	}
	defer agent.Close()
	separate := shape
	separate.Order = kvmem.OrderLayerSeparate
	cache, err := kvmem.NewLayout(kvmem.LayoutOptions{Config: separate, Agent: agent, Memory: kvmem.SystemOptions{}})
	if err != nil {
		return err
	}
	defer cache.Close()

	metadata, err := receive(socket)
	if err != nil {
		return err
	}
	descriptor, err := receive(socket)
	if err != nil {
		return err
	}
	if _, err := agent.LoadPeer(metadata); err != nil {
		return err
	}
	remote, err := agent.ImportLayout(descriptor)
	if err != nil {
		return err
	}
	defer remote.Close()
	share, err := kvmem.ReceiveShare(ctx, int(socket.Fd()))
	if err != nil {
		return err
	}
	defer share.Close()

	// The message of the transfer notifies prefill of its end.
	if err := move(ctx, remote, cache, pairs, []byte("done")); err != nil {
		return err
	}
	if err := verify(cache); err != nil {
		return fmt.Errorf("over NIXL: %w", err)
	}
	fmt.Println("blocks read over NIXL have prefill's bytes")

	mapped, err := share.OpenLayout(kvmem.OpenOptions{Flags: kvmem.OpenMappedOnly})
	if err != nil {
		return err
	}
	defer mapped.Close()
	for _, pair := range pairs {
		theirs, err := mapped.Checksums(context.Background(), []uint32{pair.Source})
		if err != nil {
			return err
		}
		ours, err := cache.Checksums(context.Background(), []uint32{pair.Destination})
		if err != nil {
			return err
		}
		if theirs[0] != ours[0] {
			return fmt.Errorf("block %d of the mapped cache has other bytes", pair.Source)
		}
	}
	fmt.Println("blocks of the mapped cache have the same checksums")
	if err := offload(ctx, cache); err != nil {
		return err
	}
	fmt.Println("blocks restored from the file have prefill's bytes")
	return child.Wait()
}

// move moves blocks and waits for the end. If the context is done first, the transfer is cancelled.
func move(ctx context.Context, from, to *kvmem.Layout, pairs []kvmem.BlockPair, message []byte) error {
	transfer, err := kvmem.StartTransfer(from, to, kvmem.TransferOptions{}, kvmem.SubmitOptions{Pairs: pairs, Notification: message})
	if err != nil {
		return err
	}
	defer transfer.Close()
	return transfer.Wait(ctx)
}

// offload moves blocks to a file, wipes them and restores them.
func offload(ctx context.Context, cache *kvmem.Layout) error {
	folder, err := os.MkdirTemp("", "kvmem-example-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	store, err := kvmem.NewLayout(kvmem.LayoutOptions{
		Config: shape, Memory: kvmem.DiskOptions{Path: filepath.Join(folder, "blocks"), Flags: kvmem.DiskOpenOrCreate},
	})
	if err != nil {
		return err
	}
	defer store.Close()
	var out, in []kvmem.BlockPair
	for i, pair := range pairs {
		out = append(out, kvmem.BlockPair{Source: pair.Destination, Destination: uint32(i)})
		in = append(in, kvmem.BlockPair{Source: uint32(i), Destination: pair.Destination})
	}
	if err := move(ctx, cache, store, out, nil); err != nil {
		return err
	}
	for _, pair := range pairs {
		for layer := uint64(0); layer < shape.NumLayers; layer++ {
			for outer := uint64(0); outer < shape.OuterDim; outer++ {
				memory, err := cache.Bytes(pair.Destination, layer, outer)
				if err != nil {
					return err
				}
				copy(memory, make([]byte, len(memory)))
			}
		}
	}
	if verify(cache) == nil {
		return fmt.Errorf("the blocks were not wiped")
	}
	if err := move(ctx, store, cache, in, nil); err != nil {
		return err
	}
	return verify(cache)
}

// verify compares each byte of the blocks that decode has read.
func verify(cache *kvmem.Layout) error {
	for _, pair := range pairs {
		for layer := uint64(0); layer < shape.NumLayers; layer++ {
			for outer := uint64(0); outer < shape.OuterDim; outer++ {
				memory, err := cache.Bytes(pair.Destination, layer, outer)
				if err != nil {
					return err
				}
				expected := make([]byte, len(memory))
				for i := range expected {
					expected[i] = element(pair.Source, layer, outer, i)
				}
				if !bytes.Equal(memory, expected) {
					return fmt.Errorf("block %d, layer %d, outer slot %d has other bytes", pair.Destination, layer, outer)
				}
			}
		}
	}
	return nil
}

// start runs this program again as another process, with a socket between the two.
func start(role string) (*os.File, *exec.Cmd, error) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(ends[1]), "socket")
	defer theirs.Close()
	child := exec.Command("/proc/self/exe", role)
	child.ExtraFiles = []*os.File{theirs}
	child.Stderr = os.Stderr
	return os.NewFile(uintptr(ends[0]), "socket to "+role), child, child.Start()
}

func send(socket *os.File, message []byte) error {
	if err := binary.Write(socket, binary.LittleEndian, uint32(len(message))); err != nil {
		return err
	}
	_, err := socket.Write(message)
	return err
}

func receive(socket *os.File) ([]byte, error) {
	var size uint32
	if err := binary.Read(socket, binary.LittleEndian, &size); err != nil {
		return nil, err
	}
	message := make([]byte, size)
	_, err := io.ReadFull(socket, message)
	return message, err
}
