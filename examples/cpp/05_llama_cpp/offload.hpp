// SPDX-License-Identifier: Apache-2.0
// Sessions that are offloaded from the context to other memory or a file, and restored.
#pragma once

#include "engine.hpp"
#include "layouts.hpp"

#include <filesystem>
#include <string>

// A session outside the context: the engines that can continue it, and the positions that llama.cpp needs to allocate
// its cells.
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

// Restores the session as a sequence of the context, in the cells that llama.cpp allocates. If it throws, the sequence
// is not in the context.
void load(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, const Session &session,
          Moved &moved);
// The second part of it: after engine.reserve with the session's positions.
void load_reserved(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, Moved &moved);

// Writes the session to a directory. The files of its store are written before, so a session that can be read is
// complete.
void write_session(const std::filesystem::path &directory, const Session &session);
// Removes the session, before the files of its store are written again.
void remove_session(const std::filesystem::path &directory);
// Throws if the session is of another engine.
Session read_session(const std::filesystem::path &directory, const Engine &engine);
