// SPDX-License-Identifier: Apache-2.0
// What child processes do.
#pragma once

#include "options.hpp"

// "prefill" evaluates prompts and serves their caches; "save" saves a session to files and ends.
void run_role(const Options &options);
