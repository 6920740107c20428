// SPDX-License-Identifier: Apache-2.0
// Starts the processes of both sides, and waits until they have ended.
#pragma once

#include "options.hpp"

// Runs this program again for each rank of prefill and decode, with a socket pair between any two ranks of
// different sides. Returns when all have ended; true if all succeeded.
bool run_all(int argc, char **argv, const Options &options);
