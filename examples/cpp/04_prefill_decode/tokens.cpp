// SPDX-License-Identifier: Apache-2.0
// Writes and checks tokens in the blocks of their prompts.
#include "tokens.hpp"

#include "pattern.hpp"
#include "words.hpp"

#include <optional>

namespace {

// A word, from its highest bit: the letter 'T' (8 bits), token (20), layer (12), outer slot (1), head (10),
// position (13).
constexpr std::uint64_t mark = 0x54;
constexpr unsigned mark_shift = 56, token_shift = 36, layer_shift = 24, outer_shift = 23, head_shift = 13;
constexpr std::uint64_t max_tokens = 1u << 20, max_layers = 1u << 12, max_heads = 1u << 10;
constexpr std::uint64_t max_positions = 1u << 13;

// One head of one token, with indices of the model.
struct Place {
    std::uint64_t token, layer, outer, head;
};

Words words_of(const Place &place) {
    return {mark << mark_shift | place.token << token_shift | place.layer << layer_shift |
            place.outer << outer_shift | place.head << head_shift};
}

std::string describe(const Place &place) {
    return "token " + std::to_string(place.token) + ", layer " + std::to_string(place.layer) +
           (place.outer == 0 ? ", keys" : ", values") + ", head " + std::to_string(place.head);
}

std::string describe_word(std::uint64_t word) {
    if (word == 0) return "zeroes";
    if (word >> mark_shift != mark) return "bytes of no token";
    const Place place = {word >> token_shift & (max_tokens - 1), word >> layer_shift & (max_layers - 1),
                         word >> outer_shift & 1, word >> head_shift & (max_heads - 1)};
    return "the bytes of " + describe(place) + ", byte " + std::to_string((word & (max_positions - 1)) * 8);
}

// The token in each slot of each block, if there is one.
using Slots = std::vector<std::optional<std::uint64_t>>;

Slots find_tokens(const Cache &cache, const std::vector<Prompt> &prompts) {
    const std::uint64_t page_size = cache.info.page_size;
    Slots slots(cache.info.num_blocks * page_size);
    for (const Prompt &prompt : prompts) {
        for (std::uint64_t token = 0; token < prompt.tokens; ++token) {
            slots[prompt.blocks[token / page_size] * page_size + token % page_size] = prompt.first + token;
        }
    }
    return slots;
}

// Calls `visit` for each head of each slot: its address, its place in the model, and the slot.
template <typename Visit>
void for_each_row(const Cache &cache, const Heads &heads, const Slots &slots, Visit visit) {
    const std::uint64_t page_size = cache.info.page_size;
    for (std::uint64_t layer = 0; layer < cache.info.num_layers; ++layer) {
        for (std::uint64_t outer = 0; outer < cache.info.outer_dim; ++outer) {
            for (std::uint64_t slot = 0; slot < slots.size(); ++slot) {
                std::byte *const piece = cache.piece(slot / page_size, layer, outer);
                for (std::uint64_t head = 0; head < heads.count; ++head) {
                    const Place place = {slots[slot].value_or(0), layer, outer, heads.first + head};
                    visit(cache.row(piece, slot % page_size, head), place, slot);
                }
            }
        }
    }
}

}  // namespace

void require_nameable_tokens(const Options &options) {
    const std::uint64_t tokens = count_tokens(draw_prompts(options));
    const std::uint64_t positions = (options.head_dim * 2 + 7) / 8;
    if (tokens <= max_tokens && options.layers <= max_layers && options.heads <= max_heads &&
        positions <= max_positions) {
        return;
    }
    throw UsageError("the pattern can name " + std::to_string(max_tokens) + " tokens, " +
                     std::to_string(max_layers) + " layers, " + std::to_string(max_heads) + " heads and " +
                     std::to_string(max_positions * 8) + " bytes of a head; this geometry has more");
}

void fill_tokens(const Cache &cache, const Heads &heads, const std::vector<Prompt> &prompts) {
    const Slots slots = find_tokens(cache, prompts);
    for_each_row(cache, heads, slots, [&](std::byte *row, const Place &place, std::uint64_t slot) {
        if (slots[slot]) write_words(row, cache.strides.row_size, words_of(place));
    });
}

void check_tokens(const Cache &cache, const Heads &heads, const std::vector<Prompt> &prompts) {
    const Slots slots = find_tokens(cache, prompts);
    for_each_row(cache, heads, slots, [&](const std::byte *row, const Place &place, std::uint64_t slot) {
        const Words expected = slots[slot] ? words_of(place) : zeroes;
        if (has_words(row, cache.strides.row_size, expected)) return;
        const WrongWord wrong = find_wrong_word(row, cache.strides.row_size, expected);
        const std::string unused = "slot " + std::to_string(slot) + " of the cache, which has no token";
        const std::string at = slots[slot] ? describe(place) : unused;
        throw Mismatch(at + ", byte " + std::to_string(wrong.index * 8) + ": found " +
                       describe_word(wrong.found));
    });
}
