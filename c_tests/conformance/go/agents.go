// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	kvmem "kvmem/bindings/go"
)

var agentCalls = map[string]call{
	"agent_name": agentName, "agent_get_backends": backends, "agent_get_local_metadata": metadata,
	"agent_create_backend":                 func(s *step) error { return agent(s).CreateBackend(s.in.text("plugin"), nil) },
	"agent_load_remote_metadata":           loadPeer,
	"agent_check_remote_metadata":          func(s *step) error { return agent(s).CheckPeer(s.in.text("peer")) },
	"agent_invalidate_remote_metadata":     func(s *step) error { return agent(s).InvalidatePeer(s.in.text("peer")) },
	"agent_invalidate_all_remote_metadata": invalidateAll,
	"agent_notify": func(s *step) error {
		return agent(s).Notify(s.in.text("peer"), []byte(s.in.text("message")))
	},
	"agent_take_notifications": takeNotifications, "region_get_agent": regionAgent, "registration_get_info": registrationInfo,
	"layout_export": exportLayout,
}

var agentCreators = map[string]call{
	"agent_create": createAgent, "region_register": register, "layout_import": importLayout,
}

func registration(s *step) *kvmem.Registration { return object[*kvmem.Registration](s.state, s.name) }

func namedAgent(s *step) *kvmem.Agent { return object[*kvmem.Agent](s.state, s.in.text("agent")) }

// storeBytes stores bytes under the name that a key has.
func storeBytes(s *step, key string, bytes []byte, err error) error {
	if name := s.in.text(key); err == nil {
		s.state.bytes[name] = bytes
	}
	return err
}

// storedBytes returns bytes that an earlier step has stored; `flip` inverts one of them.
func storedBytes(s *step, key string) []byte {
	stored, ok := s.state.bytes[s.in.text(key)]
	if !ok {
		fail("no bytes are stored as %q", s.in.text(key))
	}
	bytes := append([]byte(nil), stored...)
	if at, ok := s.in.get("flip"); ok {
		bytes[number(at)] ^= 0xff
	}
	return bytes
}

func createAgent(s *step) error {
	options := kvmem.AgentOptions{Flags: flags[kvmem.AgentFlags](s.in, "flags", agentFlags)}
	a, err := kvmem.NewAgent(s.in.text("name"), options)
	return create(s, a, err)
}

func agentName(s *step) error {
	s.put("name", agent(s).Name())
	return nil
}

func backends(s *step) error {
	list, err := agent(s).Backends()
	var names []string
	for _, backend := range list {
		names = append(names, backend.Name)
	}
	s.put("names", strings.Join(names, ","))
	return err
}

// ---- registrations ----

func register(s *step) error {
	r, err := object[*kvmem.Region](s.state, s.in.text("region")).Register(namedAgent(s))
	return create(s, r, err)
}

func registrationInfo(s *step) error {
	i, err := registration(s).Info()
	s.put("size", i.Size)
	s.put("memory_type", wordOf(memoryTypes, i.MemoryType))
	s.put("registered", asNumber(i.Registered))
	return err
}

func regionAgent(s *step) error {
	name, err := region(s).AgentName(int(s.in.number("index")))
	s.put("agent", name)
	return err
}

// ---- metadata and descriptors ----

func metadata(s *step) error {
	bytes, err := agent(s).Metadata()
	return storeBytes(s, "metadata", bytes, err)
}

func loadPeer(s *step) error {
	peer, err := agent(s).LoadPeer(storedBytes(s, "metadata"))
	s.put("peer", peer)
	return err
}

func invalidateAll(s *step) error {
	count, err := agent(s).InvalidateAllPeers()
	s.put("count", count)
	return err
}

func exportLayout(s *step) error {
	bytes, err := layout(s).Export()
	return storeBytes(s, "descriptor", bytes, err)
}

func importLayout(s *step) error {
	l, err := namedAgent(s).ImportLayout(storedBytes(s, "descriptor"))
	return create(s, l, err)
}

// ---- notifications ----

func takeNotifications(s *step) error {
	ctx, cancel := within(s.in)
	defer cancel()
	taken, err := agent(s).TakeNotifications(ctx)
	var list []string
	for _, one := range taken {
		list = append(list, one.Agent+":"+string(one.Message))
	}
	s.put("notifications", strings.Join(list, ","))
	return err
}
