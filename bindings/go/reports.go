// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import "unsafe"

// Reports are the completions that a queue gets when messages or events arrive.
type reports struct {
	queue  *Queue
	number uint64 // in its reader
}

func (r *reports) end() {
	if r != nil {
		r.queue.reader.removeSource(r.number)
	}
}

// report has a queue get completions by a call, which gets NULL and 0 for a nil queue. It returns the reports that are in force
// afterwards, and those that have ended.
func report(queue *Queue, userData uint64, before *reports,
	call func(to unsafe.Pointer, number C.uint64_t) error) (inForce, ended *reports, err error) {
	if queue == nil {
		if err := call(nil, 0); err != nil {
			return before, nil, err
		}
		return nil, before, nil
	}
	if queue.reader == nil {
		return before, nil, invalid("the queue is no queue of NewQueue")
	}
	var u users
	defer u.done()
	to, err := u.pointer(&queue.reader.queue)
	if err != nil {
		return before, nil, err
	}
	next := &reports{queue: queue}
	if next.number, err = queue.reader.addSource(userData); err != nil {
		return before, nil, err
	}
	if err := call(to, C.uint64_t(next.number)); err != nil {
		return before, next, err
	}
	return next, before, nil
}
