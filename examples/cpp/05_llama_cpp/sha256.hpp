// SPDX-License-Identifier: Apache-2.0
// SHA-256, for the keys of blocks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::vector<std::uint8_t> bytes);
