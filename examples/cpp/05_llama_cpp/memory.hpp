// SPDX-License-Identifier: Apache-2.0
// The memory of an engine's cache as regions of kvmem that other processes can open.
#pragma once

#include <cstddef>
#include <kvmem.hpp>
#include <vector>

struct Span {
    std::byte *begin;
    std::byte *end;
};

// Memory that the engine allocated, as one region.
struct CacheMemory {
    Span span;
    kvmem::Region region;
};

// Replaces the pages of these spans of host memory by those of a memory file, with the same addresses and bytes. No
// other thread may write to them during the call. Spans that have a page in common, or are adjacent, become one region.
std::vector<CacheMemory> make_shareable(std::vector<Span> spans);

// Adopts spans of one allocation of GPU memory, which other processes can open without a change. Adjacent spans become
// one region.
std::vector<CacheMemory> adopt_gpu(std::vector<Span> spans, int gpu);

// The part of a region that contains the span.
kvmem::Region view_of(const std::vector<CacheMemory> &memory, Span span);
