// SPDX-License-Identifier: Apache-2.0
// The main functions of child processes.
#pragma once

#include "channel.hpp"
#include "layouts.hpp"
#include "options.hpp"

// "prefill" evaluates prompts and serves their caches; "save" saves a session to files and ends; "continue" loads it
// and continues. "put" stores the prefix of a prompt and waits to be killed; "find" restores it, evaluates the rest and
// continues. Returns the exit status, after it has printed why it failed.
int run_role(const Options &options);

// Waits until a process that continues has loaded the session. Returns the seconds that this took.
double receive_loaded(Channel &child, Moved &moved);
