// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"unsafe"
)

// Plugin is a plugin of NIXL, or a backend that an agent has created from one.
type Plugin struct {
	Name string
	// Failure is why the plugin does not load, such as the name of a missing library; "" if it loads.
	Failure string
	// Parameters are the defaults of a plugin, the actual ones of a backend.
	Parameters map[string]string
	// MemoryTypes that it accepts.
	MemoryTypes []MemoryType
}

// Plugins lists the plugins that NIXL finds, sorted by name. It loads each of them.
func (g *Agent) Plugins() ([]Plugin, error) {
	return g.plugins(func(p *C.kvmem_agent, list **C.kvmem_plugins, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_get_plugins(p, list, failure)
	})
}

// Backends lists the backends of the agent, sorted by name.
func (g *Agent) Backends() ([]Plugin, error) {
	return g.plugins(func(p *C.kvmem_agent, list **C.kvmem_plugins, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_get_backends(p, list, failure)
	})
}

func (g *Agent) plugins(get func(*C.kvmem_agent, **C.kvmem_plugins, **C.kvmem_error) C.kvmem_status) ([]Plugin, error) {
	var list *C.kvmem_plugins
	err := g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return get((*C.kvmem_agent)(p), &list, failure)
	})
	if err != nil {
		return nil, err
	}
	defer C.kvmem_plugins_destroy(list)
	var items []C.kvmem_plugin = unsafe.Slice(list.items, int(list.count))
	found := make([]Plugin, len(items))
	for i, c := range items {
		found[i] = Plugin{Name: C.GoString(c.name), Parameters: parametersOf(c.parameters, c.parameter_count)}
		if c.failure != nil {
			found[i].Failure = C.GoString(c.failure)
		}
		for t := MemoryType(0); t < 32; t++ {
			if c.memory_types>>t&1 != 0 {
				found[i].MemoryTypes = append(found[i].MemoryTypes, t)
			}
		}
	}
	return found, nil
}

func parametersOf(first *C.kvmem_parameter, count C.size_t) map[string]string {
	parameters := map[string]string{}
	for _, one := range unsafe.Slice(first, int(count)) {
		parameters[C.GoString(one.key)] = C.GoString(one.value)
	}
	return parameters
}

// Connect connects the agent to a peer now, so that the first transfer need not, until the deadline of the context. If the
// context is cancelled first, the call continues without its caller. The options have backends or a custom parameter.
func (g *Agent) Connect(ctx context.Context, peer string, options NIXLOptions) error {
	_, err := outlived(ctx, func(timeout C.uint64_t) (struct{}, error) {
		var a arena
		defer a.free()
		o, err := options.call(&a)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, g.call(func(p *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_agent_connect(p, text(peer), o, timeout, failure)
		}, peer)
	}, func(struct{}) {})
	return err
}
