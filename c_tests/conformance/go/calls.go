// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	kvmem "kvmem/bindings/go"
)

var errInProgress = errors.New("in progress")

type call = func(*step) error

var calls = map[string]call{}

// creates has the calls whose name is of a new object.
var creates = map[string]bool{}

// add adds calls: those that act on objects, and those that create one.
func add(others, creating map[string]call) {
	for name, function := range others {
		calls[name] = function
	}
	for name, function := range creating {
		calls[name], creates[name] = function, true
	}
}

func init() {
	add(map[string]call{"status_name": statusName, "destroy": destroy}, nil)
	add(regionCalls, regionCreators)
	add(gpuCalls, gpuCreators)
	add(layoutCalls, layoutCreators)
	add(memoryCalls, nil)
	add(agentCalls, agentCreators)
	add(transferCalls, transferCreators)
	add(shareCalls, shareCreators)
	add(storeCalls, storeCreators)
}

func region(s *step) *kvmem.Region     { return object[*kvmem.Region](s.state, s.name) }
func layout(s *step) *kvmem.Layout     { return object[*kvmem.Layout](s.state, s.name) }
func transfer(s *step) *kvmem.Transfer { return object[*kvmem.Transfer](s.state, s.name) }
func broker(s *step) *kvmem.Broker     { return object[*kvmem.Broker](s.state, s.name) }
func agent(s *step) *kvmem.Agent       { return object[*kvmem.Agent](s.state, s.name) }

func statusName(s *step) error {
	value, err := strconv.ParseInt(s.in.text("value"), 0, 32)
	if err != nil {
		fail("expected a status, found %q", s.in.text("value"))
	}
	s.put("name", strings.TrimPrefix(kvmem.Status(value).Name(), "KVMEM_STATUS_"))
	return nil
}

// within is a context that ends like a timeout.
func within(in *values) (context.Context, context.CancelFunc) {
	timeout, ok := in.get("timeout_ns")
	if !ok || timeout == "forever" {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(number(timeout)))
}

func destroy(s *step) error {
	closing := object[interface{ Close() error }](s.state, s.name)
	delete(s.state.objects, s.name)
	for i, name := range s.state.order {
		if name == s.name {
			s.state.order = append(s.state.order[:i:i], s.state.order[i+1:]...)
			break
		}
	}
	return closing.Close()
}
