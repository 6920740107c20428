// SPDX-License-Identifier: Apache-2.0
// Reads CBOR (RFC 8949), as far as kvmem writes it.
#pragma once

#include "../report/value.hpp"

#include <optional>
#include <string_view>

namespace doctor {

/// The only item in some bytes; nothing if they are damaged or go on. Texts and byte strings become texts. Keys must
/// be texts.
std::optional<Value> read_cbor(std::string_view bytes);

}  // namespace doctor
