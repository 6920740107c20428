// SPDX-License-Identifier: Apache-2.0
// Writes and checks the pattern.
#include "pattern.hpp"

#include "words.hpp"

#include <cstring>
#include <string>

namespace {

// A word, from its highest bit: the letter 'K' (8 bits), block (20), layer (12), outer slot (2), position (22). With
// the letter, the first word of the first block differs from wiped memory.
constexpr std::uint64_t mark = 0x4B;
constexpr unsigned block_shift = 36, layer_shift = 24, outer_shift = 22;
constexpr std::uint64_t max_blocks = 1u << 20, max_layers = 1u << 12, max_positions = 1u << 22;

struct Place {
    std::uint64_t block, layer, outer;
};

std::uint64_t first_word(const Place &place) {
    return mark << 56 | place.block << block_shift | place.layer << layer_shift | place.outer << outer_shift;
}

std::string describe(const Place &place, std::uint64_t position) {
    return "block " + std::to_string(place.block) + ", layer " + std::to_string(place.layer) +
           (place.outer == 0 ? ", keys" : ", values") + ", byte " + std::to_string(position * 8);
}

std::string describe_word(std::uint64_t word) {
    if (word == 0) return "zeroes";
    if (word >> 56 != mark) return "bytes of no block";
    const Place place = {word >> block_shift & (max_blocks - 1), word >> layer_shift & (max_layers - 1),
                         word >> outer_shift & 3};
    return "the bytes of " + describe(place, word & (max_positions - 1));
}

[[noreturn]] void report(const std::byte *bytes, std::size_t size, const Place &at,
                         const std::string &expected, Words words) {
    const WrongWord wrong = find_wrong_word(bytes, size, words);
    throw Mismatch(describe(at, wrong.index) + ": expected " + expected + ", found " +
                   describe_word(wrong.found));
}

template <typename Visit>
void for_each_piece(const Cache &cache, std::uint64_t block, Visit visit) {
    for (std::uint64_t layer = 0; layer < cache.info.num_layers; ++layer) {
        for (std::uint64_t outer = 0; outer < cache.info.outer_dim; ++outer) {
            visit(cache.piece(block, layer, outer), Place{block, layer, outer});
        }
    }
}

}  // namespace

void require_nameable(const Options &options) {
    const std::uint64_t words = (options.page_size * options.heads * options.head_dim * 2 + 7) / 8;
    if (options.blocks <= max_blocks && options.layers <= max_layers && words <= max_positions) return;
    throw UsageError("the pattern can name " + std::to_string(max_blocks) + " blocks, " +
                     std::to_string(max_layers) + " layers and " + std::to_string(max_positions * 8) +
                     " bytes of a block in a layer; this geometry has more");
}

void fill_block(const Cache &cache, std::uint64_t block) {
    for_each_piece(cache, block, [&](std::byte *bytes, const Place &place) {
        write_words(bytes, cache.strides.piece_size, {first_word(place)});
    });
}

void wipe_block(const Cache &cache, std::uint64_t block) {
    for_each_piece(cache, block, [&](std::byte *bytes, const Place &) {
        std::memset(bytes, 0, cache.strides.piece_size);
    });
}

void spoil_block(const Cache &cache, std::uint64_t block) {
    for_each_piece(cache, block, [&](std::byte *bytes, const Place &) {
        std::memset(bytes, 0xA5, cache.strides.piece_size);
    });
}

void check_filled(const Cache &cache, std::uint64_t block, std::uint64_t origin) {
    for_each_piece(cache, block, [&](const std::byte *bytes, const Place &at) {
        const Place from = {origin, at.layer, at.outer};
        if (has_words(bytes, cache.strides.piece_size, {first_word(from)})) return;
        const std::string expected = "the bytes of block " + std::to_string(origin);
        report(bytes, cache.strides.piece_size, at, expected, {first_word(from)});
    });
}

void check_wiped(const Cache &cache, std::uint64_t block) {
    for_each_piece(cache, block, [&](const std::byte *bytes, const Place &at) {
        if (has_words(bytes, cache.strides.piece_size, zeroes)) return;
        report(bytes, cache.strides.piece_size, at, "zeroes", zeroes);
    });
}
