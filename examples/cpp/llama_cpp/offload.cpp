// SPDX-License-Identifier: Apache-2.0
#include "offload.hpp"

#include <fstream>
#include <stdexcept>

namespace {

constexpr const char *file_name = "positions";

}  // namespace

Leaving::Leaving(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence)
    : session_{engine.positions(sequence)} {
    for (std::size_t group = 0; group < cache.groups(); ++group) {
        const Place from{cache[group], engine.cell_ids(sequence, group)};
        transfers_.push_back(start_move(from, store.place(group), 0, from.blocks.size()));
    }
}

Session Leaving::finish(Moved &moved) {
    for (const kvmem::Transfer &transfer : transfers_) finish_move(transfer, moved);
    return std::move(session_);
}

Session save(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, Moved &moved) {
    return Leaving(engine, cache, store, sequence).finish(moved);
}

void load(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, const Session &session,
          Moved &moved) {
    engine.reserve(sequence, session.positions);
    load_reserved(engine, cache, store, sequence, moved);
}

void load_reserved(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence,
                   Moved &moved) {
    for (std::size_t group = 0; group < cache.groups(); ++group) {
        const Place to{cache[group], engine.cell_ids(sequence, group)};
        move_tokens(store.place(group), to, to.blocks.size(), moved);
    }
}

void write_session(const std::filesystem::path &directory, const Session &session) {
    std::ofstream file(directory / file_name);
    for (const auto &group : session.positions) {
        file << group.size();
        for (const llama_pos position : group) file << ' ' << position;
        file << '\n';
    }
    if (!file.flush()) throw std::runtime_error("cannot write to " + directory.string());
}

Session read_session(const std::filesystem::path &directory) {
    std::ifstream file(directory / file_name);
    Session session;
    for (std::size_t count; file >> count;) {
        session.positions.emplace_back(count);
        for (llama_pos &position : session.positions.back()) file >> position;
    }
    if (session.positions.empty()) throw std::runtime_error("there is no session in " + directory.string());
    return session;
}
