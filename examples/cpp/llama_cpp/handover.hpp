// SPDX-License-Identifier: Apache-2.0
// Prefill evaluates a prompt in one process, and decode continues in another.
#pragma once

#include "channel.hpp"
#include "engine.hpp"
#include "layouts.hpp"

#include <optional>
#include <string>
#include <vector>

// How decode gets the cells of prefill. `state` is for comparison: llama.cpp's own state, through the socket.
enum class Way : std::uint64_t { share, nixl, state };

struct Request {
    Way way;
    std::uint64_t sequence;
};

// What prefill tells of a sequence.
struct Offer {
    Positions positions;
    std::vector<std::vector<std::uint32_t>> cells;  // by group
    std::vector<float> logits;  // of the last token
};

// The prefill process: evaluates the prompts, one sequence each, and serves requests until decode closes the socket.
void run_prefill(Engine &engine, const std::vector<std::vector<llama_token>> &prompts, Channel &decode);

// The decode process's connection to prefill.
class Prefill {
public:
    Prefill(Engine &engine, Channel &channel, const std::vector<Pages> &pages);

    // Continues a sequence of prefill as a sequence of this context. Returns the logits of its last token. If it throws, the
    // context does not have the sequence.
    std::vector<float> take(llama_seq_id theirs, llama_seq_id ours, Way way, Moved &moved);

private:
    Offer request(llama_seq_id sequence, Way way);
    void take_state(llama_seq_id sequence, const Offer &offer, Moved &moved);
    void take_cells(llama_seq_id sequence, const Offer &offer, Moved &moved);
    void connect(Way way);

    Engine &engine_;
    Channel &channel_;
    const std::vector<Pages> &pages_;
    kvmem::Agent agent_;
    std::optional<CacheLayouts> layouts_;
    std::vector<kvmem::Layout> remote_;
    std::optional<Way> connected_;
};
