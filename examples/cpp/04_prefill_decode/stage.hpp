// SPDX-License-Identifier: Apache-2.0
// Copies blocks of a cache between GPU memory and its staging in host memory. Does nothing for caches that the CPU can
// access.
#pragma once

#include "cache.hpp"
#include "deadline.hpp"
#include "move.hpp"

#include <string>

// Both set the row and return its line; "" if nothing was done.
std::string copy_to_gpu(Row row, const Cache &cache, const BlockIds &ids, const Deadline &deadline);
std::string copy_to_host(Row row, const Cache &cache, const BlockIds &ids, const Deadline &deadline);
