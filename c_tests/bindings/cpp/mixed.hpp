// SPDX-License-Identifier: Apache-2.0
// Functions of files that are compiled with other settings. They take C handles, which are the same in all
// settings.
#pragma once

#include <kvmem.h>

// Compiled with KVMEM_RESULTS: whether building a layout on a region that is too small fails there.
bool fails_with_a_result(kvmem_region *region);
// Compiled as C++20: the size of a region.
unsigned long size_in_cpp20(kvmem_region *region);
