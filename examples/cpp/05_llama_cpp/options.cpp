// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <climits>
#include <stdexcept>
#include <thread>

namespace {

// A number within limits: llama.cpp ends the process at sizes that it does not support.
template <typename T = std::uint32_t>
T number(const std::string &text, T least, T most) {
    T value{};
    const char *const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || value < least || value > most) {
        throw std::runtime_error("is not a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
}

bool yes_or_no(const std::string &text) {
    if (text != "yes" && text != "no") throw std::runtime_error("is neither yes nor no");
    return text == "yes";
}

constexpr std::uint32_t max_tokens = 1u << 20, max_cells = 1u << 24;
constexpr int max_gpus = 1024;
// llama.cpp has batches of at least one token per sequence, and rounds the number of cells up to a multiple of this.
constexpr std::uint32_t fewest_cells = 256;

struct Argument {
    const char *name;
    void (*set)(Options &options, const std::string &value);
};

constexpr Argument arguments[] = {
    {"--model", [](Options &options, const std::string &value) { options.models.push_back(value); }},
    {"--tokens", [](Options &options, const std::string &value) { options.tokens = number(value, 1u, max_tokens); }},
    {"--context", [](Options &options, const std::string &value) { options.context = number(value, 0u, max_cells); }},
    {"--prompts", [](Options &options, const std::string &value) { options.prompts = number(value, 1u, 2u); }},
    {"--generate", [](Options &options, const std::string &value) { options.generate = number(value, 1u, max_tokens); }},
    {"--layers", [](Options &options, const std::string &value) { options.size.layers = number(value, 1u, 512u); }},
    {"--heads", [](Options &options, const std::string &value) { options.size.heads = number(value, 1u, 256u); }},
    {"--kv-heads", [](Options &options, const std::string &value) { options.size.kv_heads = number(value, 1u, 256u); }},
    {"--head-dim", [](Options &options, const std::string &value) { options.size.head_dim = number(value, 8u, 1024u); }},
    {"--gpu", [](Options &options, const std::string &value) { options.gpu = number(value, -1, max_gpus); }},
    {"--prefill-gpu", [](Options &options, const std::string &value) { options.prefill_gpu = number(value, -1, max_gpus); }},
    {"--nixl", [](Options &options, const std::string &value) { options.nixl = yes_or_no(value); }},
    {"--directory", [](Options &options, const std::string &value) { options.directory = value; }},
    {"--write-model", [](Options &options, const std::string &value) { options.write_model = value; }},
    {"--role", [](Options &options, const std::string &value) { options.role = value; }},
    {"--socket", [](Options &options, const std::string &value) { options.socket = number(value, 0, INT_MAX); }},
    {"--files", [](Options &options, const std::string &value) { options.files = value; }},
};

void check(const Options &options) {
    const ModelSize &size = options.size;
    if (size.heads % size.kv_heads != 0) {
        throw std::runtime_error("--heads=" + std::to_string(size.heads) + " is no multiple of --kv-heads=" +
                                 std::to_string(size.kv_heads));
    }
    if (size.head_dim % 8 != 0) throw std::runtime_error("--head-dim is no multiple of 8");
    if (options.context > 0 && options.context < fewest_cells) {
        throw std::runtime_error("--context has to be at least " + std::to_string(fewest_cells) + ", or 0 for enough cells");
    }
}

}  // namespace

const std::vector<Variant> &all_variants() {
    static const std::vector<Variant> variants = {
        {"gqa", "gqa"},
        {"gqa q8_0", "gqa", GGML_TYPE_Q8_0, true},
        {"gqa no FA", "gqa", GGML_TYPE_F16, false},
        {"mla", "mla"},
        {"swa", "swa"},
        {"recurrent", "recurrent"},
        {"hybrid", "hybrid"},
    };
    return variants;
}

Variant find_variant(const std::string &name) {
    for (const Variant &variant : all_variants()) {
        if (name == variant.name) return variant;
    }
    if (is_model_file(name)) return {name.substr(name.rfind('/') + 1), name};
    std::string known;
    for (const Variant &variant : all_variants()) known += "'" + variant.name + "', ";
    throw std::runtime_error("there is no model '" + name + "'; there are " + known + "and GGUF files (*.gguf)");
}

void parse(int argc, char **argv, Options &options) {
    for (int i = 1; i < argc; ++i) {
        const std::string given = argv[i];
        const std::size_t equals = given.find('=');
        const auto *found = std::find_if(std::begin(arguments), std::end(arguments), [&](const Argument &argument) {
            return given.substr(0, equals) == argument.name;
        });
        if (found == std::end(arguments) || equals == given.npos) {
            std::string known;
            for (const Argument &argument : arguments) known += std::string(" ") + argument.name + "=";
            throw std::runtime_error("there is no option '" + given + "'; there are" + known);
        }
        try {
            found->set(options, given.substr(equals + 1));
        } catch (const std::exception &error) {
            throw std::runtime_error("the value of '" + given + "' " + error.what());
        }
    }
    check(options);
}

std::vector<std::string> arguments_for_child(const Options &options, const Variant &variant) {
    const std::string model = is_model_file(variant.model) ? variant.model : variant.name;
    const ModelSize &size = options.size;
    return {"--model=" + model, "--tokens=" + std::to_string(options.tokens), "--prompts=" + std::to_string(options.prompts),
            "--context=" + std::to_string(options.context), "--layers=" + std::to_string(size.layers),
            "--heads=" + std::to_string(size.heads), "--kv-heads=" + std::to_string(size.kv_heads),
            "--head-dim=" + std::to_string(size.head_dim), "--gpu=" + std::to_string(options.prefill_gpu)};
}

EngineOptions engine_options(const Options &options, const Variant &variant) {
    EngineOptions engine;
    // More cells than a sliding window has, with space for other sequences.
    engine.context = options.context > 0 ? options.context : std::max(1536u, (options.tokens + 64) * 3);
    engine.type_k = engine.type_v = variant.type;
    engine.flash_attention = variant.flash_attention;
    engine.threads = static_cast<std::int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    return engine;
}
