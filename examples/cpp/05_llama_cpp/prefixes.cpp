// SPDX-License-Identifier: Apache-2.0
#include "prefixes.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace {

kvmem::StoreKeys keys_in_c(const std::vector<Digest> &keys) {
    return {{reinterpret_cast<const unsigned char *>(keys.data()), keys.size() * sizeof(Digest)}, sizeof(Digest)};
}

// Blocks of the store, in the cells of a sequence: each key has the tokens of 16 cells.
struct Cells {
    Cells(const Engine &engine, llama_seq_id sequence, const std::vector<Digest> &keys) : ids(engine.cell_ids(sequence, 0)) {
        ids.resize(keys.size() * Prefixes::block_tokens);
        blocks.keys = keys_in_c(keys);
        blocks.blocks = ids;
    }

    CellIds ids;
    kvmem::StoreBlocks blocks;
};

kvmem::Store open_store(const Engine &engine, const std::string &model, const std::filesystem::path &path, const Part &part,
                        std::size_t tokens) {
    kvmem::StoreOptions options;
    options.path = path;
    options.config = shape_of(part);
    options.config.page_size = Prefixes::block_tokens;
    options.config.num_blocks = tokens / Prefixes::block_tokens;
    options.config.order = part.first().transposed ? "BLCN" : "BLNC";
    options.identity = {{"model", model}, {"engine", engine.description()}, {"part", part.name}};
    options.flags = kvmem::DiskFlag::buffered;  // the page cache has what was stored recently
    return kvmem::Store::open(options);
}

}  // namespace

bool has_prefixes(const Engine &engine) { return engine.groups().size() == 1 && !engine.groups()[0].is_recurrent; }

std::vector<Digest> keys_of(const std::vector<llama_token> &tokens) {
    std::vector<Digest> keys;
    std::vector<std::uint8_t> bytes;
    for (std::size_t at = 0; at + Prefixes::block_tokens <= tokens.size(); at += Prefixes::block_tokens) {
        for (std::size_t i = 0; i < Prefixes::block_tokens; ++i) {
            for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::uint8_t>(static_cast<std::uint32_t>(tokens[at + i]) >> shift));
        }
        keys.push_back(sha256(bytes));
        bytes.assign(keys.back().begin(), keys.back().end());
    }
    return keys;
}

Prefixes::Prefixes(const Engine &engine, const std::string &model, const std::filesystem::path &directory, std::size_t tokens) {
    if (!has_prefixes(engine)) throw std::logic_error("the model has a window or a state, so its prefixes have no blocks");
    for (const Part &part : parts_of(engine.groups()[0])) {
        stores_.push_back({part.name, open_store(engine, model, directory / part.name, part, tokens)});
    }
}

std::size_t Prefixes::put(const Engine &engine, const CacheLayouts &cache, llama_seq_id sequence, const std::vector<llama_token> &tokens,
                          Moved &moved) {
    const auto keys = keys_of(tokens);
    if (keys.empty()) return 0;
    const Cells cells(engine, sequence, keys);
    for (PartStore &each : stores_) {
        const auto started = each.store.put(cache[0].part(each.part), cells.blocks);
        if (started.transfer) finish_move(started.transfer, moved);
    }
    return keys.size() * block_tokens;
}

std::size_t Prefixes::find(const std::vector<llama_token> &tokens) const {
    const auto keys = keys_of({tokens.begin(), tokens.end() - !tokens.empty()});
    std::size_t found = keys.size();
    for (const PartStore &each : stores_) {
        if (found == 0) break;
        const auto stored = each.store.contains(keys_in_c(keys));
        found = std::min(found, static_cast<std::size_t>(std::find(stored.begin(), stored.end(), false) - stored.begin()));
    }
    return found * block_tokens;
}

std::size_t Prefixes::load(Engine &engine, const CacheLayouts &cache, llama_seq_id sequence, const std::vector<llama_token> &tokens,
                           Moved &moved) {
    // A block that is damaged is no longer stored, so each turn finds fewer.
    while (const std::size_t count = find(tokens)) {
        std::vector<llama_pos> positions(count);
        std::iota(positions.begin(), positions.end(), 0);
        engine.reserve(sequence, {positions});
        try {
            Moved loaded;
            if (load_blocks(engine, cache, sequence, keys_of({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)}), loaded)) {
                moved = loaded;
                return count;
            }
        } catch (...) {
            engine.forget(sequence);
            throw;
        }
        engine.forget(sequence);
    }
    return 0;
}

// Whether all blocks have arrived.
bool Prefixes::load_blocks(const Engine &engine, const CacheLayouts &cache, llama_seq_id sequence, const std::vector<Digest> &keys, Moved &moved) {
    const Cells cells(engine, sequence, keys);
    for (PartStore &each : stores_) {
        try {
            const auto started = each.store.get_blocks(cache[0].part(each.part), cells.blocks);
            if (started.num_moved < keys.size()) {
                if (started.transfer) started.transfer.wait();  // nothing writes to the cells after it
                return false;
            }
            finish_move(started.transfer, moved);
        } catch (const kvmem::Error &error) {
            if (error.status() != kvmem::Status::corrupt) throw;
            return false;
        }
    }
    return true;
}
