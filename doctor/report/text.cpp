// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <cstdio>

namespace doctor {

namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Bytes of the character at the start of a text that is not empty; 0 if there is none.
std::size_t character_size(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x80) return 1;
    const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
    for (std::size_t i = 1; i < size; ++i) {
        if (!is_continuation(static_cast<unsigned char>(text[i]))) return 0;
    }
    // Overlong forms, surrogates, and values above U+10FFFF.
    const auto second = static_cast<unsigned char>(text[1]);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
        (first == 0xF4 && second > 0x8F)) {
        return 0;
    }
    return size;
}

// The number of a character of up to three bytes; 0x10000 for a longer one.
unsigned code_of(std::string_view character) {
    const auto bits = [character](std::size_t at) { return static_cast<unsigned char>(character[at]) & 0x3Fu; };
    switch (character.size()) {
    case 1: return static_cast<unsigned char>(character[0]);
    case 2: return (bits(0) & 0x1Fu) << 6 | bits(1);
    case 3: return (bits(0) & 0x0Fu) << 12 | bits(1) << 6 | bits(2);
    default: return 0x10000;
    }
}

// As `is_hidden` of kvmem: control characters, separators of lines and paragraphs, marks of the direction of text.
bool is_hidden(unsigned code) {
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
           (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// Passes on each character of valid UTF-8, with its number.
template <typename Pass>
void for_each_character(std::string_view text, Pass pass) {
    while (!text.empty()) {
        const std::string_view character = text.substr(0, character_size(text));
        text.remove_prefix(character.size());
        pass(character, code_of(character));
    }
}

std::string escaped(const char *format, unsigned code) {
    char text[16];
    std::snprintf(text, sizeof text, format, code);
    return text;
}

}  // namespace

std::string as_utf8(std::string_view bytes) {
    std::string text;
    while (!bytes.empty()) {
        const std::size_t size = character_size(bytes);
        text += size == 0 ? std::string_view("\xEF\xBF\xBD") : bytes.substr(0, size);
        bytes.remove_prefix(size == 0 ? 1 : size);
    }
    return text;
}

std::string printable(std::string_view bytes) {
    std::string text;
    for_each_character(as_utf8(bytes), [&text](std::string_view character, unsigned code) {
        if (code == '\n' || code == '\t') {
            text += ' ';
        } else if (is_hidden(code)) {
            text += escaped(code < 0x100 ? "\\x%02x" : "\\u%04x", code);
        } else {
            text += character;
        }
    });
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
}

std::string as_json(std::string_view bytes) {
    std::string text = "\"";
    for_each_character(as_utf8(bytes), [&text](std::string_view character, unsigned code) {
        if (is_hidden(code)) {
            text += escaped("\\u%04x", code);
        } else {
            if (code == '"' || code == '\\') text += '\\';
            text += character;
        }
    });
    return text + '"';
}

std::string size_text(std::uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; size >= 1024 && unit + 1 < sizeof units / sizeof units[0]; ++unit) size /= 1024;
    char text[32];
    const bool is_whole = size == static_cast<double>(static_cast<std::uint64_t>(size));
    std::snprintf(text, sizeof text, is_whole ? "%.0f %s" : "%.1f %s", size, units[unit]);
    return text;
}

std::string rate_text(double bytes_per_second) {
    const double rate = bytes_per_second / 1e9;
    char text[32];
    std::snprintf(text, sizeof text, rate < 10 ? "%.2f" : rate < 100 ? "%.1f" : "%.0f", rate);
    return text;
}

std::size_t columns(std::string_view text) {
    std::size_t count = 0;
    for (const char byte : text) count += is_continuation(static_cast<unsigned char>(byte)) ? 0 : 1;
    return count;
}

}  // namespace doctor
