// SPDX-License-Identifier: Apache-2.0
#include "offload.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace {

constexpr const char *file_name = "session";
constexpr const char *form = "a session of llama.cpp, form 1";

// FNV-1a, in hexadecimal: detects accidents.
std::string hash(const std::string &text) {
    std::uint64_t value = 0xcbf29ce484222325;
    for (const char letter : text) value = (value ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    std::ostringstream digits;
    digits << std::hex << std::setw(16) << std::setfill('0') << value;
    return digits.str();
}

std::string text_of(const Session &session) {
    std::ostringstream text;
    text << form << '\n' << session.engine << '\n';
    for (const auto &group : session.positions) {
        text << group.size();
        for (const llama_pos position : group) text << ' ' << position;
        text << '\n';
    }
    return text.str();
}

}  // namespace

Leaving::Leaving(const Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence)
    : session_{engine.description(), engine.positions(sequence)} {
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

void load_reserved(Engine &engine, const CacheLayouts &cache, const SessionStore &store, llama_seq_id sequence, Moved &moved) {
    try {
        for (std::size_t group = 0; group < cache.groups(); ++group) {
            const Place to{cache[group], engine.cell_ids(sequence, group)};
            move_tokens(store.place(group), to, to.blocks.size(), moved);
        }
    } catch (...) {
        engine.forget(sequence);
        throw;
    }
}

void write_session(const std::filesystem::path &directory, const Session &session) {
    const auto fresh = directory / (std::string(file_name) + ".new");
    const std::string text = text_of(session);
    errno = 0;
    std::ofstream file(fresh);
    file << text << hash(text);
    file.close();
    if (!file) throw std::system_error(errno, std::generic_category(), "cannot write " + fresh.string());
    std::filesystem::rename(fresh, directory / file_name);
}

void remove_session(const std::filesystem::path &directory) { std::filesystem::remove(directory / file_name); }

Session read_session(const std::filesystem::path &directory, const Engine &engine) {
    const auto path = directory / file_name;
    errno = 0;
    std::ifstream file(path);
    if (!file) throw std::system_error(errno, std::generic_category(), "cannot read " + path.string());
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    const std::size_t size = all.size() - std::min(all.size(), hash("").size());
    std::istringstream text(all.substr(0, size));
    if (hash(text.str()) != all.substr(size)) throw std::runtime_error(path.string() + " is damaged");
    std::string line;
    std::getline(text, line);
    if (line != form) throw std::runtime_error(path.string() + " is not '" + form + "', but '" + line + "'");
    Session session;
    std::getline(text, session.engine);
    if (session.engine != engine.description()) {
        throw std::runtime_error(path.string() + " is a session of another engine: of [" + session.engine + "], and this is [" +
                                 engine.description() + "]");
    }
    for (std::size_t count; text >> count;) {
        session.positions.emplace_back(count);
        for (llama_pos &position : session.positions.back()) text >> position;
    }
    return session;
}
