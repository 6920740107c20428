// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	kvmem "kvmem/bindings/go"
)

// blocks of a run: pairs or tables.
type blocks struct {
	pairs               []kvmem.BlockPair
	source, destination *kvmem.BlockTable
	numTokens           uint64
}

func readBlocks(in *values) blocks {
	var b blocks
	if list := in.text("pairs"); list != "" {
		for _, pair := range strings.Split(list, ",") {
			source, destination, ok := strings.Cut(pair, ":")
			if !ok {
				fail("expected a pair, found %q", pair)
			}
			b.pairs = append(b.pairs, kvmem.BlockPair{
				Source: uint32(number(source)), Destination: uint32(number(destination)),
			})
		}
	}
	table := func(side string) *kvmem.BlockTable {
		t := &kvmem.BlockTable{
			Blocks: in.numbers(side + "_blocks"), FirstToken: in.number(side + "_first"), TokenStep: in.number(side + "_step"),
		}
		if t.Blocks == nil {
			return nil
		}
		return t
	}
	b.source, b.destination, b.numTokens = table("source"), table("destination"), in.number("num_tokens")
	return b
}

func createQueue(s *step) error {
	q, err := kvmem.NewQueue()
	return create(s, q, err)
}

func transferOptions(s *step) (source, destination *kvmem.Layout, options kvmem.TransferOptions) {
	in := s.in
	b := readBlocks(in)
	options = kvmem.TransferOptions{
		Flags: flags[kvmem.TransferFlags](in, "flags", transferFlags), Pairs: b.pairs, SourceTable: b.source,
		DestinationTable: b.destination, NumTokens: b.numTokens, SourceLayer: in.number("source_layer"),
		DestinationLayer: in.number("destination_layer"), NumLayers: in.number("num_layers"),
		SourceOuter: in.number("source_outer"), DestinationOuter: in.number("destination_outer"),
		NumOuters: in.number("num_outers"), SourceHead: in.number("source_head"),
		DestinationHead: in.number("destination_head"), NumHeads: in.number("num_heads"), Checksums: in.numbers("checksums"),
		UserData: in.number("user_data"),
	}
	if name, ok := in.get("queue"); ok {
		options.Queue = object[*kvmem.Queue](s.state, name)
	}
	return object[*kvmem.Layout](s.state, in.text("source")), object[*kvmem.Layout](s.state, in.text("destination")), options
}

func createTransfer(s *step) error {
	source, destination, options := transferOptions(s)
	t, err := kvmem.NewTransfer(source, destination, options)
	return create(s, t, err)
}

func startTransfer(s *step) error {
	source, destination, options := transferOptions(s)
	t, err := kvmem.StartTransfer(source, destination, options)
	return create(s, t, err)
}

func submitPairs(s *step) error {
	b := readBlocks(s.in)
	return transfer(s).SubmitPairs(kvmem.SubmitOptions{
		Pairs: b.pairs, SourceTable: b.source, DestinationTable: b.destination, NumTokens: b.numTokens,
		UserData: s.in.number("user_data"), Checksums: s.in.numbers("checksums"),
	})
}

func poll(s *step) error {
	ended, err := transfer(s).Poll()
	if !ended {
		return errInProgress
	}
	return err
}

func wait(s *step) error {
	ctx, cancel := within(s.in)
	defer cancel()
	return transfer(s).Wait(ctx)
}

func waitLayers(s *step) error {
	ctx, cancel := within(s.in)
	defer cancel()
	return transfer(s).WaitLayers(ctx, s.in.number("num_layers"))
}

func layers(s *step) error {
	moved, err := transfer(s).Layers()
	s.put("num_layers", moved)
	return err
}

func transferInfo(s *step) error {
	i, err := transfer(s).Info()
	s.put("bytes", i.Bytes)
	s.put("num_pieces", i.NumPieces)
	s.put("num_moves", i.NumMoves)
	s.put("num_requests", i.NumRequests)
	s.put("path", i.Path)
	return err
}

func explain(s *step) error {
	e, err := transfer(s).Explain()
	s.put("path", e.Path)
	return err
}

func queuePoll(s *step) error {
	queue := object[*kvmem.Queue](s.state, s.name)
	var list []string
	for capacity := s.in.number("capacity"); uint64(len(list)) < capacity; {
		completion, ok := queue.Poll()
		if !ok {
			break
		}
		list = append(list, completionText(completion))
	}
	s.put("completions", strings.Join(list, ","))
	return nil
}

// queueWait waits for the first completion, and takes those that have arrived with it.
func queueWait(s *step) error {
	queue := object[*kvmem.Queue](s.state, s.name)
	ctx, cancel := within(s.in)
	defer cancel()
	first, err := queue.Next(ctx)
	list := []string{completionText(first)}
	for capacity := s.in.number("capacity"); err == nil && uint64(len(list)) < capacity; {
		completion, ok := queue.Poll()
		if !ok {
			break
		}
		list = append(list, completionText(completion))
	}
	s.put("completions", strings.Join(list, ","))
	return err
}

func completionText(c kvmem.Completion) string {
	status := "OK"
	if failure, ok := c.Err.(*kvmem.Error); ok {
		status = strings.TrimPrefix(failure.Status.Name(), "KVMEM_STATUS_")
	}
	return fmt.Sprintf("%d:%d:%s", c.UserData, c.Bytes, status)
}

// ---- shares and brokers ----

func shareOptions(s *step) kvmem.ShareOptions {
	return kvmem.ShareOptions{
		Flags:     flags[kvmem.ShareFlags](s.in, "flags", shareFlags),
		Transport: word[kvmem.Transport](s.in, "transport", transports),
	}
}

func shareRegion(s *step) error {
	share, err := object[*kvmem.Region](s.state, s.in.text("region")).Share(shareOptions(s))
	return create(s, share, err)
}

func shareLayout(s *step) error {
	share, err := object[*kvmem.Layout](s.state, s.in.text("layout")).Share(shareOptions(s))
	return create(s, share, err)
}

func receivedShare(s *step) error {
	sent := object[*kvmem.Share](s.state, s.in.text("share"))
	data, err := sent.Data()
	if err != nil {
		return err
	}
	if flip, ok := s.in.get("flip"); ok {
		data[number(flip)] ^= 0xff
	}
	info, err := sent.Info()
	if err != nil {
		return err
	}
	fds := make([]int, info.NumFDs)
	for i := range fds {
		if fds[i], err = sent.FD(i); err != nil {
			return err
		}
	}
	share, err := kvmem.NewReceivedShare(data, fds)
	return create(s, share, err)
}

func shareInfo(s *step) error {
	i, err := object[*kvmem.Share](s.state, s.name).Info()
	s.put("num_fds", i.NumFDs)
	s.put("memory_size", i.MemorySize)
	s.put("object", wordOf(sharedObjects, i.Object))
	s.put("tier", wordOf(tiers, i.Tier))
	readOnly := 0
	if i.ReadOnly {
		readOnly = 1
	}
	s.put("read_only", readOnly)
	s.put("transport", wordOf(transports, i.Transport))
	return err
}

func openOptions(s *step) (*kvmem.Share, kvmem.OpenOptions) {
	options := kvmem.OpenOptions{Flags: flags[kvmem.OpenFlags](s.in, "flags", openFlags)}
	return object[*kvmem.Share](s.state, s.in.text("share")), options
}

func openRegion(s *step) error {
	share, options := openOptions(s)
	r, err := share.OpenRegion(options)
	return create(s, r, err)
}

func openLayout(s *step) error {
	share, options := openOptions(s)
	l, err := share.OpenLayout(options)
	return create(s, l, err)
}

func createBroker(s *step) error {
	b, err := kvmem.NewBroker(kvmem.BrokerOptions{Path: s.state.path(s.in.text("path"))})
	return create(s, b, err)
}

func publishOptions(s *step) kvmem.PublishOptions {
	return kvmem.PublishOptions{
		Flags: flags[kvmem.PublishFlags](s.in, "flags", publishFlags), MaxUses: s.in.number("max_uses"),
	}
}

func publish(s *step) error {
	share := object[*kvmem.Share](s.state, s.in.text("share"))
	token, err := broker(s).Publish(s.in.text("name"), share, publishOptions(s))
	return storeToken(s, token, err)
}

func grant(s *step) error {
	token, err := broker(s).Grant(s.in.text("name"), publishOptions(s))
	return storeToken(s, token, err)
}

func storeToken(s *step, token kvmem.Token, err error) error {
	if name := s.in.text("token"); err == nil {
		s.state.tokens[name] = token
	}
	return err
}

func brokerInfo(s *step) error {
	i, err := broker(s).Info()
	s.put("publications", i.Publications)
	s.put("granted", i.Granted)
	s.put("refused", i.Refused)
	return err
}

func fetch(s *step) error {
	token, ok := s.state.tokens[s.in.text("token")]
	if !ok {
		fail("there is no token %q", s.in.text("token"))
	}
	share, err := kvmem.FetchShare(context.Background(), kvmem.FetchOptions{
		Flags: flags[kvmem.FetchFlags](s.in, "flags", fetchFlags), Path: s.state.path(s.in.text("path")),
		Name: s.in.text("name"), Token: token,
	})
	return create(s, share, err)
}
