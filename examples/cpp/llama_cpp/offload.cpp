// SPDX-License-Identifier: Apache-2.0
#include "offload.hpp"

#include <fstream>
#include <stdexcept>

Session save(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence) {
    Session session{engine.positions(sequence), {}};
    for (std::size_t part = 0; part < cache.parts().size(); ++part) {
        const auto cells = indices(engine.cells(sequence, cache.parts()[part].group));
        move_tokens({cache.layout(part), cells}, store.place(part, 0, cells.size()), cells.size(), session.moved);
    }
    return session;
}

Moved load(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence,
           const Session &session) {
    engine.reserve(sequence, session.positions);
    Moved moved;
    for (std::size_t part = 0; part < cache.parts().size(); ++part) {
        const auto cells = indices(engine.cells(sequence, cache.parts()[part].group));
        move_tokens(store.place(part, 0, cells.size()), {cache.layout(part), cells}, cells.size(), moved);
    }
    return moved;
}

void write_positions(const std::string &path, const Positions &positions) {
    std::ofstream file(path);
    for (const auto &group : positions) {
        file << group.size();
        for (const llama_pos position : group) file << ' ' << position;
        file << '\n';
    }
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

Positions read_positions(const std::string &path) {
    std::ifstream file(path);
    Positions positions;
    for (std::size_t count; file >> count;) {
        positions.emplace_back(count);
        for (llama_pos &position : positions.back()) file >> position;
    }
    if (positions.empty()) throw std::runtime_error("cannot read " + path);
    return positions;
}
