// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"math"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// Directory is where agents publish their metadata and layouts under their names, and peers find them by name: a folder of
// one machine, or etcd. Entries that were published exist until they are withdrawn, the directory is closed, or the process
// ends.
type Directory struct {
	object

	mu      sync.Mutex // held while reports change
	reports *reports
}

// DirectoryOptions are options of NewDirectory. Set either Folder or Endpoints; the other fields are for etcd.
type DirectoryOptions struct {
	// Folder of this machine, which all processes use. If it does not exist, the first publication creates it for its user alone, but not
	// its parents.
	Folder string
	// Endpoints are the URLs of the servers of etcd, with http or https.
	Endpoints []string
	// Prefix that all keys begin with; "" for "kvmem".
	Prefix string
	// CAFile has the certificates of the authorities that sign those of the servers, in PEM. Required for https.
	CAFile string
	// CertificateFile and KeyFile have the certificate of this client and its key, in PEM.
	CertificateFile, KeyFile string
	// User in etcd, and its password, which is never part of a message.
	User, Password string
	// Lease is the time after the end of a process until etcd removes its entries, in whole seconds, 2 to 3600; 0 for 10 s.
	Lease time.Duration
}

// NewDirectory opens a directory. With etcd it fails if no server responds.
func NewDirectory(options DirectoryOptions) (*Directory, error) {
	var a arena
	defer a.free()
	o := newOptions[C.kvmem_directory_options](&a)
	o.folder = a.string(options.Folder)
	if len(options.Endpoints) > 0 {
		endpoints := a.pointers(len(options.Endpoints))
		for i, endpoint := range options.Endpoints {
			endpoints[i] = unsafe.Pointer(a.text(endpoint))
		}
		o.endpoints, o.endpoint_count = (**C.char)(unsafe.Pointer(&endpoints[0])), C.size_t(len(endpoints))
	}
	o.prefix, o.ca_file = a.string(options.Prefix), a.string(options.CAFile)
	o.certificate_file, o.key_file = a.string(options.CertificateFile), a.string(options.KeyFile)
	if strings.IndexByte(options.Password, 0) >= 0 {
		return nil, invalid("the password contains a NUL") // the arena quotes such strings
	}
	o.user, o.password = a.string(options.User), a.string(options.Password)
	if options.Lease%time.Second != 0 || options.Lease < 0 || options.Lease/time.Second > math.MaxUint32 {
		return nil, invalid("the lease of a directory is " + options.Lease.String() + "; it must be whole seconds")
	}
	o.lease_seconds = C.uint32_t(options.Lease / time.Second)
	if err := a.check(); err != nil {
		return nil, err
	}
	var directory *C.kvmem_directory
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_directory_create(o, &directory, failure) })
	if err != nil {
		return nil, err
	}
	d := &Directory{}
	d.own("directory", unsafe.Pointer(directory), func(p unsafe.Pointer) {
		C.kvmem_directory_destroy((*C.kvmem_directory)(p))
	})
	return d, nil
}

func (d *Directory) ref() *object {
	if d == nil {
		return nil
	}
	return &d.object
}

// Close withdraws what the directory has published, and closes it.
func (d *Directory) Close() error { return d.ref().closeObject() }

// callNamed makes a call with a name, which may be nil, until the context is done. The library makes no part of such a call
// undone, so a cancelled one continues without its caller, until its deadline.
func (d *Directory) callNamed(ctx context.Context, name *string,
	call func(directory *C.kvmem_directory, name *C.char, timeout C.uint64_t, failure **C.kvmem_error) C.kvmem_status) error {
	_, err := outlived(ctx, func(timeout C.uint64_t) (struct{}, error) {
		var a arena
		defer a.free()
		var text *C.char
		if name != nil {
			text = a.text(*name)
		}
		if err := a.check(); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, d.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return call((*C.kvmem_directory)(p), text, timeout, failure)
		})
	}, func(struct{}) {})
	return err
}

// NamedLayout is a layout to publish, and its name.
type NamedLayout struct {
	Name   string
	Layout *Layout
	// Broker of this process that offers the memory to processes of this machine while the layout is published; nil for none.
	Broker *Broker
	// Share has access and transport of the offer; nil for reading only.
	Share *ShareOptions
}

// Publish publishes an agent under its name, with layouts under names of their own. Publish again after a change: the entry is
// replaced, also that of another process.
func (d *Directory) Publish(ctx context.Context, agent *Agent, layouts ...NamedLayout) error {
	if agent == nil {
		return invalid("the agent to publish is nil")
	}
	_, err := outlived(ctx, func(timeout C.uint64_t) (struct{}, error) {
		return struct{}{}, d.publish(timeout, agent, layouts)
	}, func(struct{}) {})
	return err
}

func (d *Directory) publish(timeout C.uint64_t, agent *Agent, layouts []NamedLayout) error {
	var a arena
	defer a.free()
	var u users
	defer u.done()
	published, err := u.pointer(&agent.object)
	if err != nil {
		return err
	}
	named := unsafe.Slice((*C.kvmem_named_layout)(a.allocate(uintptr(len(layouts)+1)*C.sizeof_kvmem_named_layout)),
		len(layouts)+1)
	for i, one := range layouts {
		if one.Layout == nil {
			return invalid("the layout " + quote(one.Name) + " is nil")
		}
		p, err := u.pointer(&one.Layout.object)
		if err != nil {
			return err
		}
		named[i] = C.kvmem_named_layout{name: a.text(one.Name), layout: (*C.kvmem_layout)(p)}
		if one.Broker != nil {
			broker, err := u.pointer(&one.Broker.object)
			if err != nil {
				return err
			}
			named[i].broker = (*C.kvmem_broker)(broker)
		}
		if one.Share != nil {
			// What C reads must not point to memory of Go.
			share := newOptions[C.kvmem_share_options](&a)
			*share = *one.Share.c()
			named[i].share = share
		}
	}
	if err := a.check(); err != nil {
		return err
	}
	return d.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_directory_publish((*C.kvmem_directory)(p), (*C.kvmem_agent)(published), &named[0], C.size_t(len(layouts)),
			timeout, failure)
	})
}

// Withdraw removes the entry of an agent that this directory has published. It fails with ErrStale if another process has
// published the name since: that entry remains.
func (d *Directory) Withdraw(ctx context.Context, agent string) error {
	return d.callNamed(ctx, &agent, func(p *C.kvmem_directory, name *C.char, timeout C.uint64_t,
		failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_directory_withdraw(p, name, timeout, failure)
	})
}

// LookUp returns the present entry of an agent. It fails with ErrNotFound if there is none: WaitFor waits for it.
func (d *Directory) LookUp(ctx context.Context, agent string) (*DirectoryEntry, error) {
	return d.entry(ctx, func(timeout C.uint64_t) (*DirectoryEntry, error) {
		return d.find(agent, timeout, func(p *C.kvmem_directory, name *C.char, timeout C.uint64_t,
			entry **C.kvmem_directory_entry, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_directory_look_up(p, name, timeout, entry, failure)
		})
	})
}

// WaitFor waits until an agent is published, and returns its entry.
func (d *Directory) WaitFor(ctx context.Context, agent string) (*DirectoryEntry, error) {
	// In slices: a call that goes on without its caller could never end, and keeps the directory open.
	return d.entry(ctx, func(C.uint64_t) (found *DirectoryEntry, err error) {
		err = inSlicesOf(ctx, lookUpSlice, func(timeout C.uint64_t) (err error) {
			found, err = d.find(agent, timeout, func(p *C.kvmem_directory, name *C.char, timeout C.uint64_t,
				entry **C.kvmem_directory_entry, failure **C.kvmem_error) C.kvmem_status {
				return C.kvmem_directory_connect(p, nil, name, timeout, entry, failure)
			})
			return err
		})
		return found, err
	})
}

// A server of etcd may take longer than `slice` to respond.
const lookUpSlice = C.uint64_t(time.Second)

// Connect waits until a peer is published, loads its metadata for an agent, and returns its entry.
func (d *Directory) Connect(ctx context.Context, agent *Agent, peer string) (*DirectoryEntry, error) {
	if agent == nil {
		return nil, invalid("the agent is nil")
	}
	waited, err := d.WaitFor(ctx, peer)
	if err != nil {
		return nil, err
	}
	waited.Close()
	return d.entry(ctx, func(timeout C.uint64_t) (*DirectoryEntry, error) {
		var u users
		defer u.done()
		user, err := u.pointer(&agent.object) // C waits without loading metadata for NULL
		if err != nil {
			return nil, err
		}
		return d.find(peer, timeout, func(p *C.kvmem_directory, name *C.char, timeout C.uint64_t,
			entry **C.kvmem_directory_entry, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_directory_connect(p, (*C.kvmem_agent)(user), name, timeout, entry, failure)
		})
	})
}

// entry makes a call that returns an entry and cannot be repeated.
func (d *Directory) entry(ctx context.Context, call func(timeout C.uint64_t) (*DirectoryEntry, error)) (*DirectoryEntry, error) {
	return outlived(ctx, call, func(unused *DirectoryEntry) { unused.Close() })
}

type findEntry func(*C.kvmem_directory, *C.char, C.uint64_t, **C.kvmem_directory_entry, **C.kvmem_error) C.kvmem_status

func (d *Directory) find(agent string, timeout C.uint64_t, find findEntry) (*DirectoryEntry, error) {
	var a arena
	defer a.free()
	name := a.text(agent)
	if err := a.check(); err != nil {
		return nil, err
	}
	var entry *C.kvmem_directory_entry
	err := d.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return find((*C.kvmem_directory)(p), name, timeout, &entry, failure)
	})
	if err != nil {
		return nil, err
	}
	return newDirectoryEntry(entry), nil
}

// Check fails with ErrStale if an agent has published another entry since, and with ErrNotFound if it has none.
func (d *Directory) Check(ctx context.Context, entry *DirectoryEntry) error {
	if entry == nil {
		return invalid("the entry to check is nil")
	}
	_, err := outlived(ctx, func(timeout C.uint64_t) (struct{}, error) {
		var u users
		defer u.done()
		checked, err := u.pointer(&entry.object)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, d.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_directory_check((*C.kvmem_directory)(p), (*C.kvmem_directory_entry)(checked), timeout, failure)
		})
	}, func(struct{}) {})
	return err
}

// Watch begins to watch an agent. The first event has its present state, if it has an entry.
func (d *Directory) Watch(ctx context.Context, agent string) error { return d.watch(ctx, &agent) }

// WatchAll begins to watch all agents.
func (d *Directory) WatchAll(ctx context.Context) error { return d.watch(ctx, nil) }

func (d *Directory) watch(ctx context.Context, agent *string) error {
	return d.callNamed(ctx, agent, func(p *C.kvmem_directory, name *C.char, timeout C.uint64_t,
		failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_directory_watch(p, name, timeout, failure)
	})
}

// Unwatch ends the watch of an agent. It fails with ErrNotFound if it is not watched by its name.
func (d *Directory) Unwatch(ctx context.Context, agent string) error { return d.unwatch(ctx, &agent) }

// UnwatchAll ends the watch of all agents. Those that are watched by name still are.
func (d *Directory) UnwatchAll(ctx context.Context) error { return d.unwatch(ctx, nil) }

func (d *Directory) unwatch(ctx context.Context, agent *string) error {
	return d.callNamed(ctx, agent, func(p *C.kvmem_directory, name *C.char, timeout C.uint64_t,
		failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_directory_unwatch(p, name, timeout, failure)
	})
}

// DirectoryEvent is a change of a directory.
type DirectoryEvent struct {
	Kind DirectoryChange
	// Agent whose entry has changed; "" for DirectoryInterrupted and DirectoryResumed.
	Agent string
	// Incarnation and Version of the entry; 0 if there is none.
	Incarnation, Version uint64
	// Err is why the entry is not valid, or the directory cannot be reached; ErrStale for DirectorySuperseded; otherwise nil.
	Err error
}

// TakeEvents returns all events of what is watched, and waits for one if there is none. Changes of one agent that were not
// taken are one event.
func (d *Directory) TakeEvents(ctx context.Context) ([]DirectoryEvent, error) {
	var taken *C.kvmem_directory_events
	err := inSlices(ctx, func(timeout C.uint64_t) error {
		return d.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_directory_take_events((*C.kvmem_directory)(p), timeout, &taken, failure)
		})
	})
	if err != nil {
		return nil, err
	}
	defer C.kvmem_directory_events_destroy(taken)
	var items []C.kvmem_directory_event = unsafe.Slice(taken.items, int(taken.count))
	events := make([]DirectoryEvent, len(items))
	for i, c := range items {
		events[i] = DirectoryEvent{
			Kind: DirectoryChange(c.kind), Agent: C.GoString(c.agent), Incarnation: uint64(c.incarnation),
			Version: uint64(c.version),
		}
		if c.status < 0 {
			events[i].Err = &Error{Status: Status(c.status), Message: C.GoString(c.message)}
		}
	}
	return events, nil
}

// ReportEvents has a queue report that events have arrived, so that no goroutine needs to wait for them: when events arrive and
// none waited before, the queue gets a completion with the user data. Take the events then. A nil queue ends the reports.
func (d *Directory) ReportEvents(queue *Queue, userData uint64) error {
	if d == nil {
		return d.ref().call(nil)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	next, ended, err := report(queue, userData, d.reports, func(to unsafe.Pointer, number C.uint64_t) error {
		return d.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_directory_report_events((*C.kvmem_directory)(p), (*C.kvmem_queue)(to), number, failure)
		})
	})
	d.reports = next
	ended.end()
	return err
}

// DirectoryEntry is the entry of an agent when it was looked up. It never changes, and needs no connection.
type DirectoryEntry struct{ object }

func newDirectoryEntry(pointer *C.kvmem_directory_entry) *DirectoryEntry {
	e := &DirectoryEntry{}
	e.own("directory entry", unsafe.Pointer(pointer), func(p unsafe.Pointer) {
		C.kvmem_directory_entry_destroy((*C.kvmem_directory_entry)(p))
	})
	return e
}

func (e *DirectoryEntry) ref() *object {
	if e == nil {
		return nil
	}
	return &e.object
}

// Close frees the entry.
func (e *DirectoryEntry) Close() error { return e.ref().closeObject() }

// PublishedLayout is a layout of an entry.
type PublishedLayout struct {
	Name string
	// Descriptor has the bytes of Layout.Export.
	Descriptor []byte
}

// DirectoryEntryInfo is the content of an entry.
type DirectoryEntryInfo struct {
	Agent string
	// Incarnation is a random number of the agent. A restarted agent has another one.
	Incarnation uint64
	// Version counts the publications of the agent, from 1.
	Version uint64
	// Metadata of the agent, which DirectoryEntry.Load loads.
	Metadata []byte
	Layouts  []PublishedLayout
}

// Info returns the content of the entry.
func (e *DirectoryEntry) Info() (DirectoryEntryInfo, error) {
	var info DirectoryEntryInfo
	err := e.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		var c C.kvmem_directory_entry_info
		status := C.kvmem_directory_entry_get_info((*C.kvmem_directory_entry)(p), &c, failure)
		if status < 0 {
			return status
		}
		info = DirectoryEntryInfo{
			Agent: C.GoString(c.agent), Incarnation: uint64(c.incarnation), Version: uint64(c.version),
			Metadata: C.GoBytes(c.metadata, C.int(c.metadata_size)), Layouts: make([]PublishedLayout, c.layout_count),
		}
		var layouts []C.kvmem_published_layout = unsafe.Slice(c.layouts, int(c.layout_count))
		for i, layout := range layouts {
			info.Layouts[i] = PublishedLayout{
				Name: C.GoString(layout.name), Descriptor: C.GoBytes(layout.descriptor, C.int(layout.size)),
			}
		}
		return status
	})
	return info, err
}

// Load loads the metadata of the entry, so that an agent can access the memory of the agent that published it. Metadata of an
// earlier incarnation is replaced: layouts that were imported from it fail with ErrStale.
func (e *DirectoryEntry) Load(agent *Agent) error {
	return e.with(agent, func(p *C.kvmem_directory_entry, to *C.kvmem_agent, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_directory_entry_load(p, to, failure)
	})
}

// OpenLayout opens a layout of the entry: maps it if it is on this machine and was published with a broker, and otherwise accesses
// it through NIXL with the agent of the options, whose metadata of the entry is loaded if it is not.
func (e *DirectoryEntry) OpenLayout(ctx context.Context, name string, options OpenOptions) (*Layout, error) {
	return outlived(ctx, func(timeout C.uint64_t) (*Layout, error) {
		var a arena
		defer a.free()
		var u users
		defer u.done()
		o, err := options.c(&a, &u)
		if err != nil {
			return nil, err
		}
		text := a.text(name)
		if err := a.check(); err != nil {
			return nil, err
		}
		var layout *C.kvmem_layout
		err = e.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
			return C.kvmem_directory_entry_open_layout((*C.kvmem_directory_entry)(p), text, o, timeout, &layout, failure)
		})
		if err != nil {
			return nil, err
		}
		return newLayout(layout, options.Agent), nil
	}, func(unused *Layout) { unused.Close() })
}

func (e *DirectoryEntry) with(agent *Agent,
	call func(*C.kvmem_directory_entry, *C.kvmem_agent, **C.kvmem_error) C.kvmem_status) error {
	if agent == nil {
		return invalid("the agent is nil")
	}
	var u users
	defer u.done()
	to, err := u.pointer(&agent.object)
	if err != nil {
		return err
	}
	return e.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return call((*C.kvmem_directory_entry)(p), (*C.kvmem_agent)(to), failure)
	})
}
