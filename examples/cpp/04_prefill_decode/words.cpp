// SPDX-License-Identifier: Apache-2.0
// Writes and compares sequences of words.
#include "words.hpp"

#include <cstring>

namespace {

std::uint64_t load(const std::byte *from, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, size);
    return word;
}

}  // namespace

void write_words(std::byte *bytes, std::size_t size, Words words) {
    std::uint64_t word = words.first;
    for (std::size_t at = 0; at < size; at += 8, word += words.step) {
        std::memcpy(bytes + at, &word, at + 8 <= size ? 8 : size - at);
    }
}

bool has_words(const std::byte *bytes, std::size_t size, Words words) {
    const std::size_t whole = size / 8;
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < whole; ++i) {
        difference |= load(bytes + i * 8, 8) ^ (words.first + i * words.step);
    }
    const std::uint64_t last = words.first + whole * words.step;
    return difference == 0 && std::memcmp(bytes + whole * 8, &last, size % 8) == 0;
}

WrongWord find_wrong_word(const std::byte *bytes, std::size_t size, Words words) {
    std::size_t i = 0;
    while (i * 8 + 8 <= size && load(bytes + i * 8, 8) == words.first + i * words.step) ++i;
    const std::size_t rest = size - i * 8;
    return {i, load(bytes + i * 8, rest < 8 ? rest : 8)};
}
