// SPDX-License-Identifier: Apache-2.0
// llama.cpp as an engine that kvmem connects to: evaluation, and where in the cache the tokens of a sequence are.
#pragma once

#include "model.hpp"

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

// A tensor of the cache. A cell of the cache holds one token, or the recurrent state of a sequence.
struct CacheTensor {
    std::string name;  // llama.cpp's, such as "cache_k_l3"
    char role;  // 'k' keys, 'v' values, 'r' and 's' recurrent state
    const ggml_tensor *tensor;
    std::int32_t type;  // ggml_type
    int gpu;  // the GPU whose memory it is in; -1 for host memory
    std::byte *data;
    std::uint64_t cells;
    std::uint64_t row_bytes;  // of one cell
    std::uint64_t elements;  // transposed: of one cell; each is `cells` elements away from the next
    bool transposed;

    std::byte *end() const { return data + cells * row_bytes; }
};

// The tensors whose cells have the same numbers. A model with a sliding window has two groups with keys and values.
struct CacheGroup {
    std::vector<CacheTensor> tensors;  // keys of all layers, then values; or r of all layers, then s
    std::uint64_t cells = 0;
    bool is_recurrent = false;
};

// A token (or state) of a sequence, and the cell of its group that contains it.
struct Cell {
    llama_pos position;
    std::uint32_t index;
};

using CellIds = std::vector<std::uint32_t>;

// The positions of a sequence, group by group, as one process sends them to another. Keys and values are not included.
using Positions = std::vector<std::vector<llama_pos>>;

struct EngineOptions {
    std::uint32_t context = 4096;  // cells
    std::uint32_t sequences = 4;  // the last one has the cells that are set aside
    std::int32_t threads = 1;  // for prompts
    ggml_type type_k = GGML_TYPE_F16;
    ggml_type type_v = GGML_TYPE_F16;
    bool flash_attention = true;
};

class Engine {
public:
    Engine(const llama_model *model, const EngineOptions &options);
    ~Engine();
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    llama_context *context() const { return context_; }
    const std::vector<CacheGroup> &groups() const { return groups_; }

    // The model and the types of its cache. Two engines need equal descriptions to continue each other's sequences.
    // Models of one architecture and size are not distinguished.
    std::string description() const;

    // Appends tokens to a sequence, and returns the logits of the last one. If it throws, the sequence is not in the
    // context.
    std::vector<float> evaluate(llama_seq_id sequence, const std::vector<llama_token> &tokens);
    void forget(llama_seq_id sequence);
    // Removes a sequence, but keeps its cells out of use, because a transfer that failed may still write to them.
    void set_aside(llama_seq_id sequence);

    // The cells of a sequence that its next token needs, in the order of positions. Throws if they are not known.
    std::vector<Cell> cells(llama_seq_id sequence, std::size_t group) const;
    CellIds cell_ids(llama_seq_id sequence, std::size_t group) const;
    Positions positions(llama_seq_id sequence) const;

    // Restores a sequence by llama.cpp itself, for comparison. `load` returns whether that succeeded. The cells that
    // llama.cpp uses are then not known.
    void restore(llama_seq_id sequence, const Positions &positions, const std::function<bool(llama_context *)> &load);

    // Makes the context hold a sequence with these positions. Its cells contain no keys, values or states yet. If it
    // throws, the sequence is not in the context.
    void reserve(llama_seq_id sequence, const Positions &positions);

private:
    struct Owner {
        llama_seq_id sequence = -1;
        llama_pos position = -1;
    };
    struct Watch;  // written by the callback of an evaluation

    static bool on_node(ggml_tensor *node, bool asks, void *engine);
    bool wants(const ggml_tensor *node);
    void note(const ggml_tensor *node);
    void discover();
    void claim(llama_seq_id sequence, llama_pos first, std::size_t count);
    void decode(llama_seq_id sequence, const llama_token *tokens, std::size_t count, bool is_last);

    const llama_model *model_;
    llama_context *context_ = nullptr;
    std::vector<CacheGroup> groups_;
    std::vector<std::vector<Owner>> owners_;  // by group and cell
    std::map<llama_seq_id, llama_pos> ends_;  // the next position of each sequence
    std::unique_ptr<Watch> watch_;
};

// The token with the largest logit.
llama_token most_likely(const std::vector<float> &logits);
