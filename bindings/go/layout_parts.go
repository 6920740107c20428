// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// LayoutPart is a layout that becomes a part of another one.
type LayoutPart struct {
	// Name of the part, such as "keys" or "scales".
	Name string
	// Layout that was not combined itself.
	Layout *Layout
}

// CombineLayouts combines layouts that share block ids to one layout, such as keys and values of different width, or data
// and scales. Exporting, sharing, resizing, checksums and transfers then work on all parts at once.
func CombineLayouts(parts []LayoutPart) (*Layout, error) {
	var a arena
	defer a.free()
	var u users
	defer u.done()
	first := (*C.kvmem_layout_part)(a.allocate(uintptr(len(parts)+1) * C.sizeof_kvmem_layout_part))
	for i, part := range unsafe.Slice(first, len(parts)) {
		layout, err := u.pointer(parts[i].Layout.ref())
		if err != nil {
			return nil, err
		}
		part.name, part.layout = a.text(parts[i].Name), (*C.kvmem_layout)(layout)
		unsafe.Slice(first, len(parts))[i] = part
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	var layout *C.kvmem_layout
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_combine(first, C.size_t(len(parts)), &layout, failure)
	})
	if err != nil {
		return nil, err
	}
	return newLayout(layout, parts), nil
}

// Part returns one part of a layout that was combined, as a separate layout.
func (l *Layout) Part(name string) (*Layout, error) {
	var a arena
	defer a.free()
	text := a.text(name)
	if err := a.check(); err != nil {
		return nil, err
	}
	var part *C.kvmem_layout
	err := l.ref().call(func(p unsafe.Pointer, failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_layout_get_part((*C.kvmem_layout)(p), text, &part, failure)
	})
	if err != nil {
		return nil, err
	}
	return newLayout(part, l), nil
}
