// SPDX-License-Identifier: Apache-2.0
// The pattern has a different word at every position, and is fast enough to check after every run.
#include "common/pattern.hpp"

#include "common/parallel.hpp"

#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace bench {
namespace {

uint64_t first_word(uint64_t block, uint64_t layer, uint64_t outer)
{
    return (block + 1) * 0x9e3779b97f4a7c15u ^ (layer + 1) * 0xbf58476d1ce4e5b9u ^
           (outer + 1) * 0x94d049bb133111ebu;
}

constexpr uint64_t step = 0xd6e8feb86659fd93u;

// Returns 0 if all words match. There is no branch in the loop.
uint64_t difference(const uint64_t *words, uint64_t count, uint64_t first)
{
    uint64_t found = 0;
    for (uint64_t index = 0; index < count; ++index)
        found |= words[index] ^ (first + index * step);
    return found;
}

} // namespace

// Past the caches: otherwise a copy on the core that wiped would be faster.
void wipe_memory(unsigned char *first, uint64_t size)
{
#ifdef __SSE2__
    auto *words = reinterpret_cast<__m128i *>(first);
    for (uint64_t index = 0; index < size / sizeof *words; ++index)
        _mm_stream_si128(words + index, _mm_setzero_si128());
    _mm_sfence();
#else
    std::memset(first, 0, size);
#endif
}

host_view::host_view(const kv::layout &layout, uint64_t shift, unsigned threads)
    : shift_(shift), threads_(threads)
{
    kv::call(kvmem_layout_get_info, layout.get(), &strides_);
    kv::call(kvmem_layout_get_info, layout.get(), &info_);
}

unsigned char *host_view::piece(uint64_t block, uint64_t layer, uint64_t outer) const
{
    const uint64_t base = strides_.bases[strides_.num_regions > 1 ? layer : 0];
    return reinterpret_cast<unsigned char *>(base + shift_ + block * strides_.block_stride +
                                             layer * strides_.layer_stride + outer * strides_.outer_stride);
}

void host_view::fill() const
{
    in_parts(info_.num_blocks, threads_, [this](uint64_t first, uint64_t last) {
        for (uint64_t block = first; block < last; ++block)
            fill_block(block);
    });
}

void host_view::fill_block(uint64_t block) const
{
    for (uint64_t layer = 0; layer < info_.num_layers; ++layer)
        for (uint64_t outer = 0; outer < info_.outer_dim; ++outer) {
            auto *words = reinterpret_cast<uint64_t *>(piece(block, layer, outer));
            const uint64_t first = first_word(block, layer, outer);
            for (uint64_t index = 0; index < strides_.piece_size / sizeof *words; ++index)
                words[index] = first + index * step;
        }
}

void host_view::wipe(const kv::pairs &moved) const
{
    in_parts(moved.size(), threads_, [&](size_t first, size_t last) {
        for (size_t index = first; index < last; ++index)
            wipe_block(moved[index].destination);
    });
}

void host_view::wipe_block(uint64_t block) const
{
    for (uint64_t layer = 0; layer < info_.num_layers; ++layer)
        for (uint64_t outer = 0; outer < info_.outer_dim; ++outer)
            wipe_memory(piece(block, layer, outer), strides_.piece_size);
}

void host_view::verify(const kv::pairs &moved) const
{
    in_parts(moved.size(), threads_, [&](size_t first, size_t last) {
        for (size_t index = first; index < last; ++index)
            verify_pair(moved[index]);
    });
}

void host_view::verify_pair(const kvmem_block_pair &pair) const
{
    for (uint64_t layer = 0; layer < info_.num_layers; ++layer)
        for (uint64_t outer = 0; outer < info_.outer_dim; ++outer) {
            const uint64_t first = first_word(pair.source, layer, outer);
            const auto *words = reinterpret_cast<uint64_t *>(piece(pair.destination, layer, outer));
            if (difference(words, strides_.piece_size / sizeof *words, first) != 0)
                throw std::runtime_error("block " + std::to_string(pair.destination) +
                                         " differs from its source block " + std::to_string(pair.source));
        }
}

} // namespace bench
