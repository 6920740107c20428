// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package kvmem

// The only file that is compiled without cgo. The compiler's message is the name that does not exist.
var _ = kvmem_needs_cgo__set_CGO_ENABLED_1_and_install_a_C_compiler
