// SPDX-License-Identifier: Apache-2.0

package kvmem

// #include "shim.h"
import "C"

import (
	"time"
	"unsafe"
)

// BlockPair is a block and its destination.
type BlockPair struct{ Source, Destination uint32 }

// BlockTable has the blocks of a sequence in the order of its tokens, and which of these tokens are moved.
type BlockTable struct {
	// Blocks are block ids.
	Blocks []uint32
	// FirstToken that is moved.
	FirstToken uint64
	// TokenStep is 0 or 1 for consecutive tokens; n for every n-th token.
	TokenStep uint64
}

func (t *BlockTable) c(a *arena) *C.kvmem_block_table {
	if t == nil {
		return nil
	}
	o := (*C.kvmem_block_table)(a.allocate(C.sizeof_kvmem_block_table))
	o.blocks = a.words(t.Blocks)
	o.num_blocks = C.size_t(len(t.Blocks))
	o.first_token = C.uint64_t(t.FirstToken)
	o.token_step = C.uint64_t(t.TokenStep)
	return o
}

// TransferOptions are what does not change from run to run. Ranges of layers, outer slots and heads are of all if their
// number is 0.
type TransferOptions struct {
	Flags TransferFlags
	// Queue that receives a completion per run; nil for none.
	Queue *Queue
	// LayersPerCompletion: the queue also gets a CompletionLayersMoved whenever this many more layers have
	// moved, and when all have; 0 for none.
	LayersPerCompletion uint64

	SourceLayer, DestinationLayer, NumLayers uint64
	SourceOuter, DestinationOuter, NumOuters uint64
	SourceHead, DestinationHead, NumHeads    uint64

	// Parts are the names of the parts to move, for layouts that were combined; nil for all.
	Parts []string
	// Method to use, or fail; 0 for the one with the highest estimated throughput.
	Method  Method
	Compute Compute
	// MaxCTAs of a copy kernel; 0 for the number with the highest throughput.
	MaxCTAs uint32
	// StagingSize in bytes; 0 for the default.
	StagingSize uint64
	// StallTimeout without progress after which a run with a peer ends with ErrTimedOut; 0 for 30 seconds
	// with staging memory, and for no limit without.
	StallTimeout time.Duration
}

// c converts the options; the reader receives the completions.
func (t *TransferOptions) c(a *arena, queue *C.kvmem_queue) *C.kvmem_transfer_options {
	o := newOptions[C.kvmem_transfer_options](a)
	o.flags = C.uint64_t(t.Flags)
	o.source_layer = C.uint64_t(t.SourceLayer)
	o.destination_layer = C.uint64_t(t.DestinationLayer)
	o.num_layers = C.uint64_t(t.NumLayers)
	o.source_outer = C.uint64_t(t.SourceOuter)
	o.destination_outer = C.uint64_t(t.DestinationOuter)
	o.num_outers = C.uint64_t(t.NumOuters)
	o.source_head = C.uint64_t(t.SourceHead)
	o.destination_head = C.uint64_t(t.DestinationHead)
	o.num_heads = C.uint64_t(t.NumHeads)
	o.num_parts = C.size_t(len(t.Parts))
	names := a.pointers(len(t.Parts))
	for i, name := range t.Parts {
		names[i] = unsafe.Pointer(a.text(name))
	}
	if len(names) > 0 {
		o.parts = (**C.char)(unsafe.Pointer(&names[0]))
	}
	o.queue = queue
	o.layers_per_completion = C.uint64_t(t.LayersPerCompletion)
	o.compute = C.uint32_t(t.Compute)
	o.max_ctas = C.uint32_t(t.MaxCTAs)
	o.staging_size = C.uint64_t(t.StagingSize)
	o.method = C.uint32_t(t.Method)
	o.stall_timeout_ns = nanoseconds(t.StallTimeout)
	return o
}

// SubmitOptions are what belongs to one run of a transfer: its blocks, as Pairs or as tables for both sides.
type SubmitOptions struct {
	// Pairs of blocks, in any order. Each destination may occur once.
	Pairs []BlockPair
	// SourceTable and DestinationTable have blocks and tokens; nil if pairs are given.
	SourceTable, DestinationTable *BlockTable
	// NumTokens that are moved by block tables.
	NumTokens uint64
	// RunTimeout after which the run ends with ErrTimedOut, by any method; 0 for no limit.
	RunTimeout time.Duration
	// UserData is returned in the completion.
	UserData uint64
	// Flags: what is checked at the end of the run.
	Flags SubmitFlags
	// Checksums are the expected CRC32C of the moved parts of each block, one per pair; nil for none.
	Checksums []uint32
	// Notification is a message to the remote agent, sent after the last byte has moved; nil for none.
	Notification []byte
	// Epochs are the expected epochs of the source blocks, one per pair or per block of SourceTable; nil for none. The run ends with
	// ErrStale if one differs.
	Epochs []uint64
}

// c converts the options, for the transfer of this number.
func (s *SubmitOptions) c(a *arena, number uint64) (*C.kvmem_submit_options, error) {
	if s.Checksums != nil && len(s.Checksums) != len(s.Pairs) { // the library would read past the end of the list
		return nil, invalid("Checksums must have one checksum per pair")
	}
	sources := len(s.Pairs)
	if s.SourceTable != nil {
		sources = len(s.SourceTable.Blocks)
	}
	if s.Epochs != nil && len(s.Epochs) != sources {
		return nil, invalid("Epochs must have one epoch per pair, or per block of SourceTable")
	}
	o := newOptions[C.kvmem_submit_options](a)
	o.pairs = pairsOf(a, s.Pairs)
	o.num_pairs = C.size_t(len(s.Pairs))
	o.source_table = s.SourceTable.c(a)
	o.destination_table = s.DestinationTable.c(a)
	o.num_tokens = C.uint64_t(s.NumTokens)
	o.user_data = C.uint64_t(number)
	o.notification = a.bytes(s.Notification)
	o.notification_size = C.size_t(len(s.Notification))
	o.flags = C.uint64_t(s.Flags)
	o.checksums = a.words(s.Checksums)
	o.epochs = a.epochs(s.Epochs)
	o.run_timeout_ns = nanoseconds(s.RunTimeout)
	return o, a.check()
}
