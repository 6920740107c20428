// SPDX-License-Identifier: Apache-2.0
// Prefixes of prompts in stores of kvmem, which survive the process: each block of tokens under a hash of all tokens up to its end.
#pragma once

#include "engine.hpp"
#include "layouts.hpp"
#include "sha256.hpp"

#include <filesystem>
#include <string>
#include <vector>

// Models in which each token needs the cells of all tokens before it. Others keep the cells of a window, or a state.
bool has_prefixes(const Engine &engine);

// The keys and values of prefixes: a store for each part of the cache.
class Prefixes {
public:
    static constexpr std::uint64_t block_tokens = 16;

    // Opens the stores in a directory, or creates them for this number of tokens. `model` names the weights. One process
    // has them open. Throws if they are of another engine or model.
    Prefixes(const Engine &engine, const std::string &model, const std::filesystem::path &directory, std::size_t tokens);

    // Stores the whole blocks of a sequence with these tokens. Waits, and returns the number of their tokens.
    std::size_t put(const Engine &engine, const CacheLayouts &cache, llama_seq_id sequence, const std::vector<llama_token> &tokens,
                    Moved &moved);
    // The number of the first tokens that are stored. The last token is evaluated in any case, for its logits.
    std::size_t find(const std::vector<llama_token> &tokens) const;
    // Restores these first tokens as a sequence, and returns their number. Damaged blocks and those after them are not
    // restored. If it throws, the sequence is not in the context.
    std::size_t load(Engine &engine, const CacheLayouts &cache, llama_seq_id sequence, const std::vector<llama_token> &tokens,
                     Moved &moved);

private:
    struct PartStore {
        std::string part;
        kvmem::Store store;
    };

    bool load_blocks(const Engine &engine, const CacheLayouts &cache, llama_seq_id sequence, const std::vector<Digest> &keys, Moved &moved);

    std::vector<PartStore> stores_;
};

// The keys of the whole blocks of a prompt.
std::vector<Digest> keys_of(const std::vector<llama_token> &tokens);
