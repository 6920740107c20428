// SPDX-License-Identifier: Apache-2.0
// Sessions that leave the context for other memory or a file, and come back.
#pragma once

#include "engine.hpp"
#include "layouts.hpp"

#include <filesystem>
#include <string>

// A session that has left the context: which engines can continue it, and what llama.cpp needs to allocate its cells again.
struct Session {
    std::string engine;  // its description
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

// Makes the session a sequence of the context again, in whatever cells llama.cpp allocates. If it throws, the sequence is not in the
// context.
void load(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, const Session &session,
          Moved &moved);
// The second part of it: after engine.reserve with the session's positions.
void load_reserved(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, Moved &moved);

// The session in a directory, next to the files of its store, which are written before: what is read is complete.
void write_session(const std::filesystem::path &directory, const Session &session);
// Before the files of its store are written again.
void remove_session(const std::filesystem::path &directory);
// Throws if the session is of another engine.
Session read_session(const std::filesystem::path &directory, const Engine &engine);
