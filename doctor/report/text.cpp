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

// C1 control characters are two bytes: U+0080 to U+009F.
bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    return first < 0x20 || first == 0x7F ||
           (character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0);
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
    const std::string valid = as_utf8(bytes);
    std::string_view rest = valid;
    while (!rest.empty()) {
        const std::size_t size = character_size(rest);
        const std::string_view character = rest.substr(0, size);
        rest.remove_prefix(size);
        if (character == "\n" || character == "\t") {
            text += ' ';
        } else if (is_control(character)) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\x%02x",
                          static_cast<unsigned>(static_cast<unsigned char>(character.back())));
            text += escaped;
        } else {
            text += character;
        }
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
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
