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

// Puts a file in memory under the pages of these spans of host memory: same addresses, same bytes. No other thread may write to
// them during the call. Spans that have a page in common, or lie side by side, have one region.
std::vector<CacheMemory> make_shareable(std::vector<Span> spans);

// Adopts spans of one allocation of a GPU's memory, which can be opened elsewhere as they are. Neighbours have one region.
std::vector<CacheMemory> adopt_gpu(std::vector<Span> spans, int gpu);

// The part of a region that contains the span.
kvmem::Region view_of(const std::vector<CacheMemory> &memory, Span span);
