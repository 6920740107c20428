// SPDX-License-Identifier: Apache-2.0
// Sessions that leave the context for other memory or a file, and come back.
#pragma once

#include "engine.hpp"
#include "layouts.hpp"

#include <filesystem>

// A session that has left the context: what llama.cpp needs to allocate its cells again.
struct Session {
    Positions positions;
};

// Copies a sequence's cells to the store. The sequence stays in the context.
Session save(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, Moved &moved);

// The same, without waiting: the engine may evaluate other sequences until `finish`, which waits.
class Leaving {
public:
    Leaving(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence);
    Session finish(Moved &moved);

private:
    Session session_;
    std::vector<kvmem::Transfer> transfers_;
};

// Makes the session a sequence of the context again, in whatever cells llama.cpp allocates.
void load(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, const Session &session,
          Moved &moved);
// The second part of it: after engine.reserve with the session's positions.
void load_reserved(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, Moved &moved);

// The session in a directory, next to the files of its store.
void write_session(const std::filesystem::path &directory, const Session &session);
Session read_session(const std::filesystem::path &directory);
