// SPDX-License-Identifier: Apache-2.0
// Copies blocks of a cache between GPU memory and the host memory beside it. For caches that the CPU reaches
// there is nothing to do.
#pragma once

#include "cache.hpp"
#include "deadline.hpp"
#include "move.hpp"

#include <string>

// Both fill in the row and return its line; "" if nothing was done.
std::string copy_to_gpu(Row row, const Cache &cache, const BlockIds &ids, const Deadline &deadline);
std::string copy_to_host(Row row, const Cache &cache, const BlockIds &ids, const Deadline &deadline);
