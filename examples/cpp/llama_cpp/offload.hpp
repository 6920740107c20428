// SPDX-License-Identifier: Apache-2.0
// Sessions that leave the context for other memory or a file, and come back.
#pragma once

#include "engine.hpp"
#include "layouts.hpp"

#include <string>

// A session that is not in the context: its positions, and its tokens in a store.
struct Session {
    Positions positions;
    Moved moved;  // when it left
};

// Copies a sequence's cells to the store, from token 0 of each part on. The sequence stays in the context.
Session save(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence);

// Makes the session a sequence of the context again, in whatever cells llama.cpp allocates.
Moved load(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence,
           const Session &session);

// The positions of a session in a file next to that of the store.
void write_positions(const std::string &path, const Positions &positions);
Positions read_positions(const std::string &path);
