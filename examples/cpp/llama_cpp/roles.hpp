// SPDX-License-Identifier: Apache-2.0
// What child processes do.
#pragma once

#include "options.hpp"

// "prefill" evaluates prompts and serves their caches; "save" saves a session to files and ends. Returns the exit status, after it has
// printed why it failed.
int run_role(const Options &options);
