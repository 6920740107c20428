// SPDX-License-Identifier: Apache-2.0
// Text for terminals and for JSON, from arbitrary bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace doctor {

/// Valid UTF-8: each byte that does not belong to a character becomes U+FFFD.
std::string as_utf8(std::string_view bytes);

/// As as_utf8, in one line and without characters that change what a terminal shows: they become \xNN or \uNNNN.
std::string printable(std::string_view bytes);

/// A string of JSON, with these characters escaped.
std::string as_json(std::string_view bytes);

/// "1.5 GiB", "512 B".
std::string size_text(std::uint64_t bytes);

/// "12.3": GB/s with two or three digits.
std::string rate_text(double bytes_per_second);

/// Number of columns of printable text, one per character.
std::size_t columns(std::string_view text);

}  // namespace doctor
