// SPDX-License-Identifier: Apache-2.0
// Starts the processes of both sides and sees them end.
#pragma once

#include "options.hpp"

// Runs this program again for each rank of prefill and decode, with a socket pair between any two ranks of
// different sides. All have ended when it returns; true when all ended well.
bool run_all(int argc, char **argv, const Options &options);
