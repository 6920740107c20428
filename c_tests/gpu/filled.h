// SPDX-License-Identifier: Apache-2.0
// Device memory that holds one value in every byte.
#pragma once

#include "harness.h"

/* When it returns, every process that has the memory sees the value. */
void fill_device(int device, uint64_t address, uint64_t size, unsigned char value);
void check_device(int device, uint64_t address, uint64_t size, unsigned char value);
