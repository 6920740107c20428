// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// Broker is a server that publishes shares by name at a socket path. One thread serves all clients, and never waits for a
// single one.
type Broker struct{ object }

// BrokerOptions are options of NewBroker.
type BrokerOptions struct {
	// Path of the socket, at most 107 bytes.
	Path string
	// Users are ids of users that may fetch; none for only the user of the broker.
	Users []uint32
	// ClientTimeout that a client may take to send its request, and again to read the reply; 0 for 10 seconds.
	ClientTimeout time.Duration
	// MaxBytesPerUser of shares in transit to one user; 0 for 256 MiB.
	MaxBytesPerUser uint64
	// Mode has the permission bits of the socket; 0 for 0600.
	Mode uint32
	// MaxClients at once; 0 for 256.
	MaxClients uint32
	// MaxClientsPerUser at once; 0 for MaxClients divided by the number of users.
	MaxClientsPerUser uint32
}

// NewBroker creates a broker. It listens at its path when the call returns.
func NewBroker(options BrokerOptions) (*Broker, error) {
	var a arena
	defer a.free()
	o := newOptions[C.kvmem_broker_options](&a)
	o.path = a.string(options.Path)
	o.users = a.words(options.Users)
	o.num_users = C.size_t(len(options.Users))
	o.client_timeout_ns = nanoseconds(options.ClientTimeout)
	o.max_bytes_per_user = C.uint64_t(options.MaxBytesPerUser)
	o.mode = C.uint32_t(options.Mode)
	o.max_clients = C.uint32_t(options.MaxClients)
	o.max_clients_per_user = C.uint32_t(options.MaxClientsPerUser)
	if err := a.check(); err != nil {
		return nil, err
	}
	var broker *C.kvmem_broker
	err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_broker_create(o, &broker, failure) })
	if err != nil {
		return nil, err
	}
	b := &Broker{}
	b.own("broker", unsafe.Pointer(broker), func(p unsafe.Pointer) { C.kvmem_broker_destroy((*C.kvmem_broker)(p)) })
	return b, nil
}

// nanoseconds converts a duration; a negative one becomes the shortest.
func nanoseconds(d time.Duration) C.uint64_t {
	if d < 0 {
		d = 1
	}
	return C.uint64_t(d)
}

func (b *Broker) ref() *object {
	if b == nil {
		return nil
	}
	return &b.object
}

// Close ends the thread of the broker, closes and removes its socket, and releases its shares.
func (b *Broker) Close() error { return b.ref().closeObject() }

// Token is 256 random bits, with which a client fetches a share. Transmit it as a secret.
type Token [32]byte

// PublishOptions say what a token grants.
type PublishOptions struct {
	Flags PublishFlags
	// MaxUses is the number of fetches that the token permits; 0 for no limit.
	MaxUses uint64
	// Lifetime of the token; 0 for as long as the name is published.
	Lifetime time.Duration
}

func (p PublishOptions) c() *C.kvmem_publish_options {
	return &C.kvmem_publish_options{
		struct_size: C.sizeof_kvmem_publish_options, flags: C.uint64_t(p.Flags), max_uses: C.uint64_t(p.MaxUses),
		lifetime_ns: nanoseconds(p.Lifetime),
	}
}

// Publish publishes a share under a name, and returns a token for fetching it. The broker keeps the share alive while it
// is published.
func (b *Broker) Publish(name string, share *Share, options PublishOptions) (Token, error) {
	if share == nil {
		return Token{}, invalid("the share to publish is nil")
	}
	var u users
	defer u.done()
	published, err := u.pointer(&share.object)
	if err != nil {
		return Token{}, err
	}
	return b.token(name, func(p *C.kvmem_broker, name *C.char, token *C.kvmem_token, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_broker_publish(p, name, (*C.kvmem_share)(published), options.c(), token, failure)
	})
}

// Grant returns another token for a published share.
func (b *Broker) Grant(name string, options PublishOptions) (Token, error) {
	return b.token(name, func(p *C.kvmem_broker, name *C.char, token *C.kvmem_token, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_broker_grant(p, name, options.c(), token, failure)
	})
}

func (b *Broker) token(name string,
	call func(*C.kvmem_broker, *C.char, *C.kvmem_token, **C.kvmem_error) C.kvmem_status) (token Token, err error) {
	var a arena
	defer a.free()
	text := a.text(name)
	if err := a.check(); err != nil {
		return Token{}, err
	}
	var granted C.kvmem_token
	err = b.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return call((*C.kvmem_broker)(p), text, &granted, failure)
	})
	if err != nil {
		return Token{}, err
	}
	return *(*Token)(unsafe.Pointer(&granted)), nil
}

// Unpublish withdraws a published share and all its tokens. Fetches in progress complete.
func (b *Broker) Unpublish(name string) error {
	var a arena
	defer a.free()
	text := a.text(name)
	if err := a.check(); err != nil {
		return err
	}
	return b.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_broker_unpublish((*C.kvmem_broker)(p), text, failure)
	})
}

// BrokerInfo has the counts of a broker.
type BrokerInfo struct {
	// Publications and Clients now.
	Publications, Clients uint64
	// Granted fetches, and Refused clients and requests, since the broker was created.
	Granted, Refused uint64
}

// Info returns the counts of the broker.
func (b *Broker) Info() (BrokerInfo, error) {
	var i C.kvmem_broker_info
	err := b.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_broker_get_info((*C.kvmem_broker)(p), &i, failure)
	})
	if err != nil {
		return BrokerInfo{}, err
	}
	return BrokerInfo{
		Publications: uint64(i.publications), Clients: uint64(i.clients), Granted: uint64(i.granted), Refused: uint64(i.refused),
	}, nil
}

// FetchOptions are options of FetchShare.
type FetchOptions struct {
	Flags FetchFlags
	// Path of the broker's socket, at most 107 bytes.
	Path string
	// Name of the published share.
	Name string
	// Token for that share.
	Token Token
	// BrokerUser is the user id of FetchBrokerUser; 0 without that flag.
	BrokerUser uint32
}

// FetchShare fetches a share from a broker, until the deadline of the context. If the context is cancelled first, the
// fetch continues without its caller, and may use up the token.
func FetchShare(ctx context.Context, options FetchOptions) (*Share, error) {
	return outlived(ctx, func(timeout C.uint64_t) (*Share, error) {
		var a arena
		defer a.free()
		o := newOptions[C.kvmem_fetch_options](&a)
		o.flags = C.uint64_t(options.Flags)
		o.path = a.string(options.Path)
		o.name = a.string(options.Name)
		o.token = (*C.kvmem_token)(a.bytes(options.Token[:]))
		o.broker_user = C.uint32_t(options.BrokerUser)
		if err := a.check(); err != nil {
			return nil, err
		}
		var share *C.kvmem_share
		err := try(func(failure **C.kvmem_error) C.kvmem_status { return C.kvmem_share_fetch(o, timeout, &share, failure) })
		if err != nil {
			return nil, err
		}
		return newShare(share, nil), nil
	}, func(share *Share) { share.Close() })
}
