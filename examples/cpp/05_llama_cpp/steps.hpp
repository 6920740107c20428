// SPDX-License-Identifier: Apache-2.0
// The steps that the program shows. Each prints rows of the table.
#pragma once

#include "run.hpp"

// Prefill hands two sequences over: over each link, and in llama.cpp's own form.
void hand_over(const Run &run, Engine &engine, const std::vector<CacheMemory> &memory);
// Prefill ends before the handover, or during it.
void lose_prefill(const Run &run, Engine &engine, const std::vector<CacheMemory> &memory);
// Offloads a session, and restores it to other cells.
void offload(const Run &run, Engine &engine, const CacheLayouts &cache);
// A process saves a session to files and exits. A new process continues it.
void restart(const Run &run);
// A process stores the prefix of a prompt and is killed. A new one finds it, and evaluates the rest of the prompt.
void find_prefix(const Run &run, Engine &engine);
// The same by llama.cpp's own functions, for comparison.
void use_state_functions(const Run &run, Engine &engine);
