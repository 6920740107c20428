// SPDX-License-Identifier: Apache-2.0
// The reference for files without any library: pread and pwrite of each piece, on one thread and on several.
#pragma once

#include "reference/nixl_file.hpp"

#include <vector>

namespace positioned {

// All pieces, which threads take one after the other; throws where one is not done whole.
void transfer(int file, bool writes, const std::vector<nixl::file_piece> &pieces, unsigned threads);

} // namespace positioned
