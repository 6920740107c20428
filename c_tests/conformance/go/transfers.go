// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	kvmem "kvmem/bindings/go"
)

var transferCalls = map[string]call{
	"queue_poll": queuePoll, "queue_wait": queueWait, "transfer_prepare": prepare, "transfer_submit": submit,
	"transfer_poll": poll,
	"transfer_wait": wait, "transfer_wait_layers": waitLayers,
	"transfer_get_info": transferInfo, "transfer_get_methods": usedMethod,
}

var transferCreators = map[string]call{
	"queue_create": createQueue, "transfer_create": createTransfer, "transfer_start": startTransfer,
}

// submitOptions reads the blocks of a run: pairs or tables.
func submitOptions(in *values) kvmem.SubmitOptions {
	o := kvmem.SubmitOptions{
		Flags: flags[kvmem.SubmitFlags](in, "submit_flags", submitFlags), NumTokens: in.number("num_tokens"), UserData: in.number("user_data"), Checksums: in.numbers("checksums"),
	}
	for _, epoch := range in.list("epochs") {
		o.Epochs = append(o.Epochs, number(epoch))
	}
	for _, pair := range in.list("pairs") {
		source, destination := cut(pair)
		o.Pairs = append(o.Pairs, kvmem.BlockPair{Source: uint32(number(source)), Destination: uint32(number(destination))})
	}
	if text, ok := in.get("notification"); ok {
		o.Notification = []byte(text)
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
	o.SourceTable, o.DestinationTable = table("source"), table("destination")
	return o
}

func createQueue(s *step) error {
	q, err := kvmem.NewQueue()
	return create(s, q, err)
}

// selection reads the ranges of layers, outer slots and heads.
func selection(in *values) kvmem.TransferOptions {
	return kvmem.TransferOptions{
		SourceLayer: in.number("source_layer"), DestinationLayer: in.number("destination_layer"),
		NumLayers: in.number("num_layers"), SourceOuter: in.number("source_outer"),
		DestinationOuter: in.number("destination_outer"), NumOuters: in.number("num_outers"),
		SourceHead: in.number("source_head"), DestinationHead: in.number("destination_head"),
		NumHeads: in.number("num_heads"),
	}
}

func transferOptions(s *step) (source, destination *kvmem.Layout, options kvmem.TransferOptions) {
	in := s.in
	options = selection(in)
	options.Flags = flags[kvmem.TransferFlags](in, "flags", transferFlags)
	options.Parts, options.Method = in.list("parts"), word[kvmem.Method](in, "method", methods)
	options.LayersPerCompletion = in.number("layers_per_completion")
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
	t, err := kvmem.StartTransfer(source, destination, options, submitOptions(s.in))
	return create(s, t, err)
}

func prepare(s *step) error { return transfer(s).Prepare(submitOptions(s.in)) }

func submit(s *step) error {
	options := submitOptions(s.in)
	if options.Pairs == nil && options.SourceTable == nil && options.DestinationTable == nil {
		return transfer(s).Submit(nil)
	}
	return transfer(s).Submit(&options)
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

func transferInfo(s *step) error {
	i, err := transfer(s).Info()
	s.put("bytes", i.Bytes)
	s.put("num_pieces", i.NumPieces)
	s.put("num_moves", i.NumMoves)
	s.put("num_requests", i.NumRequests)
	s.put("layers_moved", i.LayersMoved)
	s.put("method", wordOf(methods, i.Method))
	return err
}

func usedMethod(s *step) error {
	m, err := transfer(s).Methods()
	if err != nil {
		return err
	}
	s.put("method", wordOf(methods, m[0].Method))
	s.put("choice", wordOf(choices, m[0].Choice))
	return nil
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
	if c.Kind == kvmem.CompletionLayersMoved {
		return fmt.Sprintf("%d:layers:%d", c.UserData, c.NumLayers)
	}
	status := "OK"
	if failure, ok := c.Err.(*kvmem.Error); ok {
		status = strings.TrimPrefix(failure.Status.Name(), "KVMEM_STATUS_")
	}
	return fmt.Sprintf("%d:%d:%s", c.UserData, c.Bytes, status)
}
