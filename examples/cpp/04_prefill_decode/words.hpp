// SPDX-License-Identifier: Apache-2.0
// Sequences of 8-byte words in memory: first, first + step, first + 2 * step and so on. The last word may be
// incomplete.
#pragma once

#include <cstddef>
#include <cstdint>

struct Words {
    std::uint64_t first;
    std::uint64_t step = 1;
};

// The words of wiped memory.
constexpr Words zeroes{0, 0};

void write_words(std::byte *bytes, std::size_t size, Words words);
bool has_words(const std::byte *bytes, std::size_t size, Words words);

struct WrongWord {
    std::uint64_t index;
    std::uint64_t found;
};

// Returns the first word that differs. There must be one.
WrongWord find_wrong_word(const std::byte *bytes, std::size_t size, Words words);
