// SPDX-License-Identifier: Apache-2.0
// What a continuation is compared with: that of a single process.
#pragma once

#include "child.hpp"
#include "handover.hpp"
#include "options.hpp"

#include <string>
#include <vector>

// Another sequence has the first cells of decode, so that its sequences get other cells than those of prefill. llama.cpp sums
// over cells in the order of their numbers, in lanes of vector instructions: equal bits need the same lanes, so this is a multiple
// of their number.
constexpr std::uint32_t other_tokens = 64;

// The logits of a continuation, token by token.
using Continuation = std::vector<std::vector<float>>;

// Continues a sequence by its most likely tokens, from the logits of its last one.
Continuation generate(Engine &engine, llama_seq_id sequence, std::vector<float> logits, std::uint32_t count);

// How alike two continuations are.
struct Likeness {
    bool same_tokens = false;
    float difference = 0;  // the largest one of two logits; 0 if all bits are equal
};
Likeness compare(const Continuation &one, const Continuation &other);
// The worse of two.
Likeness worse(const Likeness &one, const Likeness &other);

// The runs of one model.
struct Run {
    const Options &options;
    const Variant variant;
    const std::string program;
    Model model;
    Prompts prompts;  // the second one ends inside a block of the store
    std::vector<Continuation> expected;  // of one process that evaluates both prompts and continues both
    Continuation alone;  // of one process that has only the first

    Engine engine() const { return Engine(model.get(), engine_options(options, variant)); }
    std::vector<std::string> child(const char *role) const;
};

Prompts make_prompts(const Options &options, const llama_model *model);
Run prepare(const Options &options, const Variant &variant, const char *program);
