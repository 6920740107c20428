// SPDX-License-Identifier: Apache-2.0
// Continuations, and their comparison with that of a single process.
#pragma once

#include "child.hpp"
#include "handover.hpp"
#include "options.hpp"

#include <functional>
#include <string>
#include <vector>

// Another sequence has the first cells of decode, so that its sequences get other cells than those of prefill.
// llama.cpp sums over cells in the order of their numbers, in lanes of vector instructions. Equal bits need the same
// lanes, so this is a multiple of the number of lanes.
constexpr std::uint32_t other_tokens = 64;

// The logits of a continuation, token by token.
using Continuation = std::vector<std::vector<float>>;

// Continues a sequence by its most likely tokens, from the logits of its last one.
Continuation generate(Engine &engine, llama_seq_id sequence, std::vector<float> logits, std::uint32_t count);

// How alike two continuations are.
struct Likeness {
    std::size_t tokens = 0;
    std::size_t same_tokens = 0;
    float difference = 0;  // the largest one of two logits; 0 if all bits are equal
};
// The logits after one more token.
using Evaluate = std::function<std::vector<float>(llama_token)>;
// Continues by the tokens of `expected`, and compares the logits. If rounding makes another token the most likely one,
// it is counted, and the tokens after it can still be compared.
Likeness follow(const Evaluate &evaluate, std::vector<float> logits, const Continuation &expected);
// The same for a sequence of an engine.
Likeness follow(Engine &engine, llama_seq_id sequence, std::vector<float> logits, const Continuation &expected);
// The sums of the tokens, and the larger difference.
Likeness combine(const Likeness &one, const Likeness &other);
// Whether it equals the continuation of a single process: bit by bit, on a GPU except for rounding.
bool is_alike(const Likeness &likeness, bool on_gpu);

// The runs of one model.
struct Run {
    const Options &options;
    const Variant variant;
    const std::string program;
    Model model;
    Prompts prompts;
    std::vector<Continuation> expected;  // of one process that evaluates both prompts and continues both
    Continuation alone;  // of one process that has only the first

    Engine engine() const { return Engine(model.get(), engine_options(options, variant)); }
    std::vector<std::string> child(const char *role) const;
};

Prompts make_prompts(const Options &options, const llama_model *model);
Run prepare(const Options &options, const Variant &variant, const char *program);
