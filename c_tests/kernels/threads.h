// SPDX-License-Identifier: Apache-2.0
// Threads of a CTA, which one CPU thread executes.
#pragma once

#include "copy.h"

using kernel = void (*)(const kvmem_copy);

// Runs a kernel: one CTA after the other, and the threads of each in turns from barrier to barrier.
void launch(kernel run, unsigned ctas, const kvmem_copy &asked);
