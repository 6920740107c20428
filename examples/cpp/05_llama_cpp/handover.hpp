// SPDX-License-Identifier: Apache-2.0
// Prefill evaluates a prompt in one process, and decode continues in another.
#pragma once

#include "channel.hpp"
#include "engine.hpp"
#include "layouts.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The link by which decode reads the cells of prefill. On one host the cache can be mapped, and NIXL uses shared memory
// unless it is restricted to TCP.
enum class Link : std::uint64_t { mapped, nixl, nixl_tcp };

using Prompts = std::vector<std::vector<llama_token>>;

// Memory that is reused, so that only its first use has page faults. It is not set to zero.
class Buffer {
public:
    std::uint8_t *of_size(std::size_t size) {
        if (size > size_) {
            bytes_.reset(new std::uint8_t[size]);
            size_ = size;
        }
        return bytes_.get();
    }

private:
    std::unique_ptr<std::uint8_t[]> bytes_;
    std::size_t size_ = 0;
};

// The prefill process: evaluates the prompts, one sequence each, and serves requests until decode closes the
// connection.
void run_prefill(Engine &engine, const Prompts &prompts, Channel &decode);

// The decode process's connection to prefill. If a function throws, the sequence is not in the context.
class Prefill {
public:
    // Waits until prefill has evaluated its prompts.
    Prefill(Engine &engine, Channel &channel, const std::vector<CacheMemory> &memory);

    // Prepares a link; once per link, not per sequence.
    void connect(Link link);

    // Allocates the cells of a sequence. Its positions follow from the prompt, so decode can do this while prefill
    // evaluates.
    void reserve(llama_seq_id theirs, llama_seq_id ours);
    Positions positions(llama_seq_id theirs);
    // Functions that are called while a cache is pulled: before the second half starts, and while it is in flight.
    struct Halfway {
        std::function<void()> before_rest;
        std::function<void()> during_rest;
    };
    // Reads the cells of a reserved sequence. Returns the logits of its last token.
    std::vector<float> pull(llama_seq_id theirs, llama_seq_id ours, Moved &moved, const Halfway &halfway = {});

    // For comparison: the sequence in llama.cpp's own form, through the socket, and restored by llama.cpp.
    std::vector<float> take_state(llama_seq_id theirs, llama_seq_id ours, const Positions &positions, Moved &moved);

    void disconnect();

private:
    Engine &engine_;
    Channel &channel_;
    const std::vector<CacheMemory> &memory_;
    kvmem::Agent agent_;
    std::optional<CacheLayouts> layouts_;
    std::vector<kvmem::Layout> remote_;  // by group
    Buffer state_;
};
