// SPDX-License-Identifier: Apache-2.0
// Starts the two processes and sees them end.
#pragma once

#include "options.hpp"

// Runs this program again as prefill and as decode, with a socket pair between them. Both have ended when it
// returns; true when both ended well.
bool run_both(int argc, char **argv, const Options &options);
