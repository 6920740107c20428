// SPDX-License-Identifier: Apache-2.0
// Device memory with the same value in every byte.
#pragma once

#include "harness.h"

/* On return, the value is visible in every process that has the memory. */
void fill_device(int device, uint64_t address, uint64_t size, unsigned char value);
void check_device(int device, uint64_t address, uint64_t size, unsigned char value);
