// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"runtime/cgo"
	"runtime/debug"
	"sync"
)

var panics struct {
	mu      sync.Mutex
	handler func(value any, stack []byte)
}

// SetPanicHandler sets the function that receives panics of callbacks: of the log and of release functions, which run on
// threads of the library, and so cannot panic further. Without one, or with nil, they are printed to os.Stderr. A panic
// of a progress function cancels the allocation, and is also reported here.
func SetPanicHandler(handler func(value any, stack []byte)) {
	panics.mu.Lock()
	defer panics.mu.Unlock()
	panics.handler = handler
}

// recovered reports a panic of a callback; it must be deferred directly.
func recovered() {
	value := recover()
	if value == nil {
		return
	}
	panics.mu.Lock()
	handler := panics.handler
	panics.mu.Unlock()
	defer func() { _ = recover() }() // a panic of the handler has nowhere to go
	if handler != nil {
		handler(value, debug.Stack())
		return
	}
	fmt.Fprintf(os.Stderr, "kvmem: panic in a callback: %v\n%s", value, debug.Stack())
}

// logger and the functions below are the values of cgo handles.
type logger func(level LogLevel, target, message string)

var log struct {
	mu     sync.Mutex
	handle cgo.Handle
}

// SetLog sets the function that receives messages of the library up to a level, or removes it (LogOff, or nil).
//
// The function runs on one thread of the library, one message at a time, and may call this package. Messages that were
// logged before SetLog are delivered to the previous function before SetLog returns.
func SetLog(level LogLevel, receive func(level LogLevel, target, message string)) error {
	var handle cgo.Handle
	if receive == nil {
		level = LogOff
	} else {
		handle = cgo.NewHandle(logger(receive))
	}
	log.mu.Lock()
	previous := log.handle
	log.mu.Unlock()
	// Without the lock: the previous function may call SetLog, and the library waits for it.
	err := try(func(failure **C.kvmem_error) C.kvmem_status {
		return C.kvmem_go_set_log(C.uint32_t(level), C.uintptr_t(handle), failure)
	})
	if err != nil || level == LogOff {
		if handle != 0 {
			handle.Delete()
		}
		if err != nil {
			return err
		}
		handle = 0
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if log.handle == previous {
		log.handle = handle
		if previous != 0 {
			previous.Delete()
		}
	}
	return nil
}

//export kvmemGoLog
func kvmemGoLog(level C.uint32_t, target, message *C.char, handle C.uintptr_t) {
	defer recovered()
	receive := cgo.Handle(handle).Value().(logger)
	receive(LogLevel(level), C.GoString(target), C.GoString(message))
}

//export kvmemGoProgress
func kvmemGoProgress(done, total C.uint64_t, handle C.uintptr_t) (cancel C.int32_t) {
	cancel = 1 // a panic cancels
	defer recovered()
	progress := cgo.Handle(handle).Value().(func(done, total uint64) bool)
	if progress(uint64(done), uint64(total)) {
		cancel = 0
	}
	return cancel
}

//export kvmemGoRelease
func kvmemGoRelease(handle C.uintptr_t) {
	defer recovered()
	release := cgo.Handle(handle).Value().(func())
	cgo.Handle(handle).Delete()
	release()
}
