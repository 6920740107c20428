// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/hex"
)

var memoryCalls = map[string]call{"write": write, "read": read, "fill": fill, "expect": expect}

func hexBytes(in *values) []byte {
	expected, err := hex.DecodeString(in.text("bytes"))
	if err != nil {
		fail("%v", err)
	}
	return expected
}

// part returns the memory that a step names.
func part(s *step, size int) []byte {
	memory, err := region(s).Bytes()
	if err != nil {
		fail("%v", err)
	}
	offset := s.in.number("offset")
	return memory[offset : offset+uint64(size)]
}

func write(s *step) error {
	data := hexBytes(s.in)
	copy(part(s, len(data)), data)
	return nil
}

func read(s *step) error {
	expected := hexBytes(s.in)
	if found := part(s, len(expected)); !bytes.Equal(found, expected) {
		fail("expected %x, found %x", expected, found)
	}
	return nil
}

// elements calls visit with each element of a block, in the order of layers, outer slots, tokens, heads and elements.
func elements(s *step, visit func(element []byte)) {
	l := layout(s)
	info, err := l.Info()
	if err != nil {
		fail("%v", err)
	}
	regions := make([][]byte, len(info.Bases))
	for i := range regions {
		r, err := l.Region(i)
		if err != nil {
			fail("%v", err)
		}
		defer r.Close()
		if regions[i], err = r.Bytes(); err != nil {
			fail("%v", err)
		}
		region, err := r.Info()
		if err != nil {
			fail("%v", err)
		}
		regions[i] = regions[i][info.Bases[i]-region.Address:]
	}
	c, block := info.Config, s.in.number("block")
	heads := max(c.NumHeads, 1)
	for layer := uint64(0); layer < c.NumLayers; layer++ {
		for outer := uint64(0); outer < c.OuterDim; outer++ {
			for token := uint64(0); token < c.PageSize; token++ {
				for head := uint64(0); head < heads; head++ {
					at := layer*info.LayerStep + outer*info.OuterStep + token*info.TokenStep + head*info.HeadStep
					offset := block*c.BlockStride + layer*c.LayerStride + outer*c.OuterStride +
						token*c.TokenStride + head*c.HeadStride
					for element := uint64(0); element < c.InnerDim/heads; element++ {
						first := offset + element*c.ElementStride
						visit(regions[at][first : first+c.DtypeWidth])
					}
				}
			}
		}
	}
}

func max(a, b uint64) uint64 {
	if a > b {
		return a
	}
	return b
}

func pattern(seed uint64, i int) byte { return byte(31*seed + 7*uint64(i) + 13*(uint64(i)/256)) }

func fill(s *step) error {
	seed, i := s.in.number("seed"), 0
	elements(s, func(element []byte) {
		for j := range element {
			element[j] = pattern(seed, i)
			i++
		}
	})
	return nil
}

func expect(s *step) error {
	var found []byte
	elements(s, func(element []byte) { found = append(found, element...) })
	expected := hexBytes(s.in)
	if seed, ok := s.in.get("seed"); ok {
		expected = make([]byte, len(found))
		for i := range expected {
			expected[i] = pattern(number(seed), i)
		}
	}
	if !bytes.Equal(found, expected) {
		fail("expected %x, found %x", expected, found)
	}
	return nil
}
