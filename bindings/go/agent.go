// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"sync"
	"time"
	"unsafe"
)

// LoadNIXL loads NIXL (libnixl_capi.so, version 1.5 or later) from a path, which is that of the file or of its directory.
// "" is the path in the environment variable KVMEM_NIXL_LIBRARY, or what the loader finds. NewAgent does this if NIXL is
// not loaded.
func LoadNIXL(path string) error {
	var a arena
	defer a.free()
	text := a.string(path)
	if err := a.check(); err != nil {
		return err
	}
	return try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_nixl_load(text, failure) })
}

// NIXLPath returns the path of the file that NIXL was loaded from.
func NIXLPath() (string, error) {
	var path *C.kvmem_blob
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_nixl_get_path(&path, failure) })
	if err != nil {
		return "", err
	}
	return string(blob(path)), nil
}

// Agent is a NIXL agent. Registrations, layouts and transfers keep it alive.
type Agent struct {
	object

	mu      sync.Mutex // held while reports change
	reports *reports
}

// AgentOptions are options of NewAgent.
type AgentOptions struct {
	Flags AgentFlags
	// ProgressDelay between rounds of the progress thread; 0 for 1 ms.
	ProgressDelay time.Duration
	// ListenDelay between rounds of the listen thread; 0 for 100 ms.
	ListenDelay time.Duration
	// ListenPort of the listen thread; 0 for 8888.
	ListenPort uint32
	SyncMode   SyncMode
	// CallTimeout of calls without a timeout of their own; 0 for 10 minutes.
	CallTimeout time.Duration
}

// NewAgent creates an agent. Peers know it by its name.
func NewAgent(name string, options AgentOptions) (*Agent, error) {
	var a arena
	defer a.free()
	o := newOptions[C.kvmem_agent_options](&a)
	o.flags = C.uint64_t(options.Flags)
	if options.ProgressDelay < 0 || options.ListenDelay < 0 {
		return nil, invalid("a delay of an agent is negative; give 0 for the default")
	}
	o.progress_delay_ns = C.uint64_t(options.ProgressDelay)
	o.listen_delay_ns = C.uint64_t(options.ListenDelay)
	o.listen_port = C.uint32_t(options.ListenPort)
	o.sync_mode = C.uint32_t(options.SyncMode)
	o.call_timeout_ns = nanoseconds(options.CallTimeout)
	text := a.text(name)
	if err := a.check(); err != nil {
		return nil, err
	}
	var agent *C.kvmem_agent
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_agent_create(text, o, &agent, failure) })
	if err != nil {
		return nil, err
	}
	result := &Agent{}
	result.own("agent", unsafe.Pointer(agent), func(p unsafe.Pointer) { C.kvmem_agent_destroy((*C.kvmem_agent)(p)) })
	return result, nil
}

func (g *Agent) ref() *object {
	if g == nil {
		return nil
	}
	return &g.object
}

// Close closes the handle. The agent ends when no registration, layout or transfer uses it.
func (g *Agent) Close() error { return g.ref().closeObject() }

// Name returns the name of the agent; "" if it is closed.
func (g *Agent) Name() string {
	var name string
	_ = g.ref().call(func(p unsafe.Pointer, _ **C.kvmem_error) C.kvmem_status {
		name = C.GoString(C.kvmem_agent_name((*C.kvmem_agent)(p)))
		return C.KVMEM_STATUS_OK
	})
	return name
}

// call makes a call with an agent and strings.
func (g *Agent) call(call func(agent *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status,
	strings ...string) error {
	var a arena
	defer a.free()
	copies := map[string]*C.char{}
	for _, s := range strings {
		copies[s] = a.text(s)
	}
	if err := a.check(); err != nil {
		return err
	}
	return g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return call((*C.kvmem_agent)(p), func(s string) *C.char { return copies[s] }, failure)
	})
}

// CreateBackend creates a backend of the agent: a NIXL plugin that moves bytes, such as "UCX" (peers) or "POSIX" (files).
// The parameters replace those of the plugin.
func (g *Agent) CreateBackend(plugin string, parameters map[string]string) error {
	var a arena
	defer a.free()
	list := unsafe.Slice((*C.kvmem_parameter)(a.allocate(uintptr(len(parameters)+1)*C.sizeof_kvmem_parameter)),
		len(parameters)+1)
	count := 0
	for key, value := range parameters {
		list[count].key, list[count].value = a.text(key), a.text(value)
		count++
	}
	if err := a.check(); err != nil {
		return err
	}
	return g.call(func(p *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_create_backend(p, text(plugin), &list[0], C.size_t(count), failure)
	}, plugin)
}

// Metadata returns the metadata of the agent. A peer loads it to access the registered memory of the agent. Get it after
// the last registration that peers are to access.
func (g *Agent) Metadata() ([]byte, error) {
	var metadata *C.kvmem_blob
	err := g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_get_local_metadata((*C.kvmem_agent)(p), &metadata, failure)
	})
	if err != nil {
		return nil, err
	}
	return blob(metadata), nil
}

// LoadPeer loads the metadata of a peer, and returns its name.
func (g *Agent) LoadPeer(metadata []byte) (string, error) {
	var a arena
	defer a.free()
	data := a.bytes(metadata)
	var name *C.kvmem_blob
	err := g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_load_remote_metadata((*C.kvmem_agent)(p), data, C.size_t(len(metadata)), &name, failure)
	})
	if err != nil {
		return "", err
	}
	return string(blob(name)), nil
}

// CheckPeer fails with ErrNotFound if the metadata of a peer is not loaded. It does not check whether the peer is alive.
func (g *Agent) CheckPeer(name string) error {
	return g.call(func(p *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_check_remote_metadata(p, text(name), failure)
	}, name)
}

// InvalidatePeer removes the metadata of a peer. Layouts that were imported from it fail with ErrStale from now on.
func (g *Agent) InvalidatePeer(name string) error {
	return g.call(func(p *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_invalidate_remote_metadata(p, text(name), nil, failure)
	}, name)
}

// FetchPeer requests the metadata of a peer from its listen thread, until the deadline of the context. If the context is
// cancelled first, the request continues without its caller.
func (g *Agent) FetchPeer(ctx context.Context, name, address string, port uint32) error {
	_, err := outlived(ctx, func(timeout C.uint64_t) (struct{}, error) {
		return struct{}{}, g.call(func(p *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_agent_fetch_remote_metadata(p, text(name), text(address), C.uint32_t(port), timeout, failure)
		}, name, address)
	}, func(struct{}) {})
	return err
}

// InvalidateAllPeers removes the metadata of all peers, as InvalidatePeer does for one, and returns their number.
func (g *Agent) InvalidateAllPeers() (int, error) {
	var count C.size_t
	err := g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_invalidate_remote_metadata((*C.kvmem_agent)(p), nil, &count, failure)
	})
	return int(count), err
}

// WithdrawMetadata requests that the listen thread of a peer removes the metadata of the agent. The
// arrival of the request is not certain.
func (g *Agent) WithdrawMetadata(address string, port uint32) error {
	return g.call(func(p *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_invalidate_local_metadata(p, text(address), C.uint32_t(port), failure)
	}, address)
}

// SendMetadata sends the metadata of the agent to the listen thread of a peer, which loads it. Its arrival is not certain.
func (g *Agent) SendMetadata(address string, port uint32) error {
	return g.call(func(p *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_send_local_metadata(p, text(address), C.uint32_t(port), failure)
	}, address)
}

// ImportLayout creates a remote layout from the descriptor of a peer (Layout.Export), whose metadata must be loaded.
func (g *Agent) ImportLayout(descriptor []byte) (*Layout, error) {
	var a arena
	defer a.free()
	data := a.bytes(descriptor)
	var layout *C.kvmem_layout
	err := g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_import((*C.kvmem_agent)(p), data, C.size_t(len(descriptor)), &layout, failure)
	})
	if err != nil {
		return nil, err
	}
	return newLayout(layout, g), nil
}

// Notify sends a message to a peer.
func (g *Agent) Notify(peer string, message []byte) error {
	var a arena
	defer a.free()
	data := a.bytes(message)
	return g.call(func(p *C.kvmem_agent, text func(string) *C.char, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_agent_notify(p, text(peer), data, C.size_t(len(message)), failure)
	}, peer)
}

// Notification is a message from a peer.
type Notification struct {
	// Agent that sent it.
	Agent string
	// Message has its bytes.
	Message []byte
}

// ReportNotifications has a queue report that messages have arrived, so that no goroutine needs to wait for them: when
// messages arrive and none waited before, the queue gets a completion with the user data. Take the messages then. A nil queue
// ends the reports.
func (g *Agent) ReportNotifications(queue *Queue, userData uint64) error {
	if g == nil {
		return g.ref().call(nil)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	next, ended, err := report(queue, userData, g.reports, func(to unsafe.Pointer, number C.uint64_t) error {
		return g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_agent_report_notifications((*C.kvmem_agent)(p), (*C.kvmem_queue)(to), number, failure)
		})
	})
	g.reports = next
	ended.end()
	return err
}

// TakeNotifications returns all messages that the agent has received, and waits for one if there is none. Each message is
// returned once. It fails once with ErrOutOfMemory where messages were lost, because too many waited.
func (g *Agent) TakeNotifications(ctx context.Context) ([]Notification, error) {
	var taken *C.kvmem_notifications
	err := inSlices(ctx, func(timeout C.uint64_t) error {
		return g.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_agent_take_notifications((*C.kvmem_agent)(p), timeout, &taken, failure)
		})
	})
	if err != nil {
		return nil, err
	}
	defer C.kvmem_notifications_destroy(taken)
	var items []C.kvmem_notification = unsafe.Slice(taken.items, int(taken.count))
	result := make([]Notification, len(items))
	for i, n := range items {
		result[i] = Notification{Agent: C.GoString(n.agent), Message: C.GoBytes(n.data, C.int(n.size))}
	}
	return result, nil
}
