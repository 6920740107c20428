// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	kvmem "kvmem/bindings/go"
)

var shareCalls = map[string]call{
	"share_get_info": shareInfo, "broker_publish": publish, "broker_grant": grant, "broker_get_info": brokerInfo,
	"broker_unpublish": func(s *step) error { return broker(s).Unpublish(s.in.text("name")) },
}

var shareCreators = map[string]call{
	"share_create_region": shareRegion, "share_create_layout": shareLayout, "share_create_received": receivedShare,
	"share_open_region": openRegion, "share_open_layout": openLayout, "broker_create": createBroker, "share_fetch": fetch,
}

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
	fds, err := sent.FDs()
	if err != nil {
		return err
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
	s.put("read_only", asNumber(i.ReadOnly))
	s.put("transport", wordOf(transports, i.Transport))
	return err
}

func openOptions(s *step) (*kvmem.Share, kvmem.OpenOptions) {
	options := kvmem.OpenOptions{Flags: flags[kvmem.OpenFlags](s.in, "flags", openFlags)}
	if name, ok := s.in.get("agent"); ok {
		options.Agent = object[*kvmem.Agent](s.state, name)
	}
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
