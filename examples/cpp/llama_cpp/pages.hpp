// SPDX-License-Identifier: Apache-2.0
// Memory that an engine allocated, in a file in memory that other processes can map.
#pragma once

#include <cstddef>
#include <kvmem.hpp>
#include <vector>

// Whole pages of this process, as a region of kvmem.
struct Pages {
    std::byte *begin;
    std::byte *end;
    kvmem::Region region;
};

struct Span {
    std::byte *begin;
    std::byte *end;
};

// Puts a file in memory under the pages of these spans: same addresses, same bytes. No other thread may write to them during
// the call. Spans that have a page in common, or lie side by side, have one region.
std::vector<Pages> make_shareable(std::vector<Span> spans);

// The part of the region that contains the span.
kvmem::Region view_of(const std::vector<Pages> &pages, Span span);
