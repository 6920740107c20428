// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace {

// On a GPU, the order of sums depends on the cells in use. Without the keys and values of the prompt, logits of "gqa"
// differ by 6.
constexpr float rounding = 0.03f;

std::vector<llama_token> prompt_of(std::uint32_t tokens, std::uint32_t vocabulary, std::uint32_t sequence) {
    std::vector<llama_token> prompt(tokens);
    std::uint64_t state = 12345 + sequence;
    for (llama_token &token : prompt) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        token = static_cast<llama_token>((state >> 33) % vocabulary);
    }
    return prompt;
}

// The maximum, where NaN is larger than all numbers.
float larger(float one, float other) { return std::isnan(one) || one >= other ? one : other; }

}  // namespace

Continuation generate(Engine &engine, llama_seq_id sequence, std::vector<float> logits, std::uint32_t count) {
    Continuation all;
    for (std::uint32_t i = 0; i < count; ++i) {
        all.push_back(std::move(logits));
        logits = engine.evaluate(sequence, {most_likely(all.back())});
    }
    return all;
}

Likeness follow(const Evaluate &evaluate, std::vector<float> logits, const Continuation &expected) {
    Likeness likeness;
    for (const std::vector<float> &each : expected) {
        const llama_token token = most_likely(each);
        ++likeness.tokens;
        likeness.same_tokens += most_likely(logits) == token;
        for (std::size_t i = 0; i < each.size(); ++i) {
            const float difference = std::abs(logits[i] - each[i]);
            likeness.difference = larger(likeness.difference, difference);
        }
        logits = evaluate(token);
    }
    return likeness;
}

Likeness follow(Engine &engine, llama_seq_id sequence, std::vector<float> logits, const Continuation &expected) {
    const auto evaluate = [&](llama_token token) { return engine.evaluate(sequence, {token}); };
    return follow(evaluate, std::move(logits), expected);
}

Likeness combine(const Likeness &one, const Likeness &other) {
    return {one.tokens + other.tokens, one.same_tokens + other.same_tokens, larger(one.difference, other.difference)};
}

bool is_alike(const Likeness &likeness, bool on_gpu) { return likeness.difference <= (on_gpu ? rounding : 0); }

std::vector<std::string> Run::child(const char *role) const {
    std::vector<std::string> arguments = arguments_for_child(options, variant);
    arguments.insert(arguments.begin(), {program, std::string("--role=") + role});
    return arguments;
}

Prompts make_prompts(const Options &options, const llama_model *model) {
    const auto vocabulary = static_cast<std::uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
    if (vocabulary == 0) throw std::runtime_error("the model has no vocabulary");
    Prompts prompts = {prompt_of(options.tokens, vocabulary, 0)};
    if (options.prompts > 1) prompts.push_back(prompt_of(options.tokens / 2 + 5, vocabulary, 1));
    return prompts;
}

Run prepare(const Options &options, const Variant &variant, const char *program) {
    Run run{options, variant, program, make_model(variant.model, options.size, options.gpu), {}, {}, {}};
    run.prompts = make_prompts(options, run.model.get());
    if (run.prompts.size() > 1) {
        Engine engine = run.engine();
        auto first = engine.evaluate(0, run.prompts[0]);
        auto second = engine.evaluate(1, run.prompts[1]);
        run.expected.push_back(generate(engine, 0, std::move(first), options.generate));
        run.expected.push_back(generate(engine, 1, std::move(second), options.generate));
    }
    Engine engine = run.engine();
    run.alone = generate(engine, 0, engine.evaluate(0, run.prompts[0]), options.generate);
    return run;
}
