// SPDX-License-Identifier: Apache-2.0
// The reference for files without a library: pread and pwrite of each piece, on one or several threads.
#pragma once

#include "reference/nixl_file.hpp"

#include <vector>

namespace positioned {

// Transfers all pieces. Each thread takes the next piece. Throws if one fails or moves fewer bytes.
void transfer(int file, bool writes, const std::vector<nixl::file_piece> &pieces, unsigned threads);

} // namespace positioned
