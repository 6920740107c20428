// SPDX-License-Identifier: Apache-2.0
// A model evaluates a prompt in one process, or before it was offloaded, and continues elsewhere with the same tokens.
#include "handover.hpp"
#include "launch.hpp"
#include "offload.hpp"
#include "table.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>

namespace {

struct Variant {
    const char *name;
    const char *model;
    ggml_type type;
    bool flash_attention;
};

constexpr Variant variants[] = {
    {"gqa", "gqa", GGML_TYPE_F16, true},     {"gqa q8_0", "gqa", GGML_TYPE_Q8_0, true},
    {"gqa no FA", "gqa", GGML_TYPE_F16, false}, {"mla", "mla", GGML_TYPE_F16, true},
    {"swa", "swa", GGML_TYPE_F16, true},     {"recurrent", "recurrent", GGML_TYPE_F16, true},
    {"hybrid", "hybrid", GGML_TYPE_F16, true},
};

// llama.cpp sums over the cells in the order of their numbers, in lanes of its vector instructions: equal bits need the
// same lanes, so this is a multiple of their number.
constexpr std::uint32_t other_tokens = 64;

struct Options {
    std::vector<std::string> models;
    std::uint32_t tokens = 1024;
    std::uint32_t generate = 20;
    ModelSize size;
    std::string directory = "/tmp";
    std::string role;
    int socket = -1;
};

Options parse(int argc, char **argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const std::size_t equals = argument.find('=');
        const std::string name = argument.substr(0, equals);
        const std::string value = equals == argument.npos ? "" : argument.substr(equals + 1);
        if (name == "--model") {
            options.models.push_back(value);
        } else if (name == "--tokens") {
            options.tokens = static_cast<std::uint32_t>(std::stoul(value));
        } else if (name == "--layers") {
            options.size.layers = static_cast<std::uint32_t>(std::stoul(value));
        } else if (name == "--kv-heads") {
            options.size.kv_heads = static_cast<std::uint32_t>(std::stoul(value));
        } else if (name == "--head-dim") {
            options.size.head_dim = static_cast<std::uint32_t>(std::stoul(value));
        } else if (name == "--directory") {
            options.directory = value;
        } else if (name == "--role") {
            options.role = value;
        } else if (name == "--socket") {
            options.socket = std::stoi(value);
        } else {
            throw std::runtime_error("there is no option '" + argument + "'");
        }
    }
    return options;
}

const Variant &find(const std::string &name) {
    for (const Variant &variant : variants) {
        if (name == variant.name) return variant;
    }
    throw std::runtime_error("there is no model '" + name + "'");
}

std::vector<llama_token> prompt_of(std::uint32_t tokens, std::uint32_t vocabulary, std::uint32_t sequence) {
    std::vector<llama_token> prompt(tokens);
    std::uint64_t state = 12345 + sequence;
    for (llama_token &token : prompt) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        token = static_cast<llama_token>((state >> 33) % vocabulary);
    }
    return prompt;
}

EngineOptions engine_options(const Options &options, const Variant &variant) {
    EngineOptions engine;
    engine.context = (options.tokens + 64) * 3;
    engine.type_k = engine.type_v = variant.type;
    engine.flash_attention = variant.flash_attention;
    engine.threads = static_cast<std::int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    return engine;
}

// The logits of a continuation, token by token.
using Continuation = std::vector<std::vector<float>>;

Continuation generate(Engine &engine, llama_seq_id sequence, std::vector<float> logits, std::uint32_t count) {
    Continuation all;
    for (std::uint32_t i = 0; i < count; ++i) {
        all.push_back(std::move(logits));
        logits = engine.evaluate(sequence, {most_likely(all.back())});
    }
    return all;
}

// A run of one model: what it is compared with, and the context that continues.
struct Run {
    const Options &options;
    const Variant &variant;
    const std::string program;
    Model model;
    std::vector<std::vector<llama_token>> prompts;  // the second one ends inside a block
    std::vector<Continuation> expected;  // of one process that evaluates both prompts and continues both
    Continuation alone;  // of one process that has only the first
};

std::vector<std::vector<llama_token>> make_prompts(const Options &options, const llama_model *model) {
    const auto vocabulary = static_cast<std::uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
    return {prompt_of(options.tokens, vocabulary, 0), prompt_of(options.tokens / 2 + 5, vocabulary, 1)};
}

Run prepare(const Options &options, const Variant &variant, const char *program) {
    Run run{options, variant, program, make_model(variant.model, options.size), {}, {}, {}};
    run.prompts = make_prompts(options, run.model.get());
    Engine engine(run.model.get(), engine_options(options, variant));
    auto first = engine.evaluate(0, run.prompts[0]);
    auto second = engine.evaluate(1, run.prompts[1]);
    run.expected.push_back(generate(engine, 0, std::move(first), options.generate));
    run.expected.push_back(generate(engine, 1, std::move(second), options.generate));
    Engine fresh(run.model.get(), engine_options(options, variant));
    run.alone = generate(fresh, 0, fresh.evaluate(0, run.prompts[0]), options.generate);
    return run;
}

Child start(const Run &run, const char *role) {
    const Options &options = run.options;
    return start_child({run.program, std::string("--role=") + role, std::string("--model=") + run.variant.name,
                        "--tokens=" + std::to_string(options.tokens), "--directory=" + options.directory,
                        "--layers=" + std::to_string(options.size.layers),
                        "--kv-heads=" + std::to_string(options.size.kv_heads),
                        "--head-dim=" + std::to_string(options.size.head_dim)});
}

// Both sequences of prefill continue here, beside one that this context had before.
void hand_over(const Run &run, Engine &engine, const std::vector<Pages> &pages) {
    const Child child = start(run, "prefill");
    Channel channel(child.socket());
    Prefill prefill(engine, channel, pages);
    const struct {
        const char *name;
        Way way;
    } ways[] = {{"handover, mapped", Way::share}, {"handover, NIXL", Way::nixl}, {"llama.cpp state, socket", Way::state}};
    for (const auto &[name, way] : ways) {
        Moved warm_up;  // connects
        prefill.take(0, 0, way, warm_up);
        Moved moved;
        const Stopwatch stopwatch;
        auto logits = prefill.take(0, 0, way, moved);
        const double seconds = stopwatch.seconds();
        Moved second;
        auto other = prefill.take(1, 2, way, second);
        const bool same = generate(engine, 0, std::move(logits), run.options.generate) == run.expected[0] &&
                          generate(engine, 2, std::move(other), run.options.generate) == run.expected[1];
        print_row(run.variant.name, name, moved, seconds, same);
        engine.forget(2);
    }
    channel.send({});
}

// Prefill dies before the handover: decode evaluates the prompt itself.
void lose_prefill(const Run &run, Engine &engine, const std::vector<Pages> &pages) {
    Child child = start(run, "prefill");
    Channel channel(child.socket());
    Prefill prefill(engine, channel, pages);
    child.kill();
    Moved moved;
    const Stopwatch stopwatch;
    std::vector<float> logits;
    try {
        prefill.take(0, 0, Way::nixl, moved);
        throw std::logic_error("a killed process handed over its cache");
    } catch (const std::runtime_error &error) {
        moved.path = error.what();
        logits = engine.evaluate(0, run.prompts[0]);
    }
    const bool same = generate(engine, 0, std::move(logits), run.options.generate) == run.alone;
    print_row(run.variant.name, "prefill killed: evaluated here", moved, stopwatch.seconds(), same);
}

// A session leaves the context for the store; another sequence uses its cells; it comes back to other cells and continues.
void offload(const Run &run, Engine &engine, const CacheLayouts &cache, const char *name, const std::string &path) {
    engine.forget(0);
    auto logits = engine.evaluate(0, run.prompts[0]);
    const SessionStore store(cache.parts(), run.prompts[0].size(), path);
    const Stopwatch leaving;
    const Session session = save(engine, cache, store, 0);
    const double left = leaving.seconds();
    engine.forget(0);
    engine.evaluate(2, std::vector<llama_token>(other_tokens, 1));
    const Stopwatch coming;
    const Moved loaded = load(engine, cache, store, 0, session);
    const double came = coming.seconds();
    const bool same = generate(engine, 0, std::move(logits), run.options.generate) == run.alone;
    engine.forget(2);
    print_row(run.variant.name, std::string("offload to ") + name, session.moved, left, same);
    print_row(run.variant.name, std::string("restore from ") + name, loaded, came, same);
}

std::string session_path(const Options &options, pid_t process) {
    return options.directory + "/kvmem-llama-session-" + std::to_string(process);
}

void remove_session(const std::string &path, std::size_t parts) {
    std::remove(path.c_str());
    for (std::size_t part = 0; part < parts; ++part) std::remove((path + "." + std::to_string(part)).c_str());
}

// A process saves a session to files and ends; this one opens them and continues.
void restart(const Run &run, Engine &engine, const CacheLayouts &cache) {
    const std::string path = session_path(run.options, getpid());
    { const Child writer = start(run, "save"); }
    Session session{read_positions(path), {}};
    const Stopwatch stopwatch;
    const SessionStore store(cache.parts(), run.prompts[0].size(), path);
    const Moved loaded = load(engine, cache, store, 0, session);
    const double seconds = stopwatch.seconds();
    // The engine has the text so far, so the first token is known.
    const bool same = generate(engine, 0, run.alone[0], run.options.generate) == run.alone;
    print_row(run.variant.name, "restart from files", loaded, seconds, same);
    remove_session(path, cache.parts().size());
}

// The same by llama.cpp's own files.
void save_file(const Run &run, Engine &engine) {
    const std::string path = session_path(run.options, getpid());
    engine.forget(0);
    engine.evaluate(0, run.prompts[0]);
    const Positions positions = engine.positions(0);
    const Stopwatch leaving;
    Moved moved;
    moved.path = "llama.cpp state file";
    moved.bytes = llama_state_seq_save_file(engine.context(), path.c_str(), 0, run.prompts[0].data(), run.prompts[0].size());
    const double left = leaving.seconds();
    const Stopwatch coming;
    engine.restore(0, positions, [&](llama_context *context) {
        std::vector<llama_token> tokens(run.prompts[0].size());
        std::size_t count = 0;
        return llama_state_seq_load_file(context, path.c_str(), 0, tokens.data(), tokens.size(), &count) > 0;
    });
    const double came = coming.seconds();
    const bool same = generate(engine, 0, run.alone[0], run.options.generate) == run.alone;
    print_row(run.variant.name, "llama.cpp save_file", moved, left, same);
    print_row(run.variant.name, "llama.cpp load_file", moved, came, same);
    std::remove(path.c_str());
}

void run_variant(const Options &options, const Variant &variant, const char *program) {
    const Run run = prepare(options, variant, program);
    Engine engine(run.model.get(), engine_options(options, variant));
    // Another sequence has the first cells, so that this one gets others than in prefill.
    engine.evaluate(1, std::vector<llama_token>(other_tokens, 1));
    const auto pages = share_memory(engine);
    hand_over(run, engine, pages);
    lose_prefill(run, engine, pages);
    const CacheLayouts cache(engine, pages, nullptr);
    offload(run, engine, cache, "host memory", "");
    const std::string path = session_path(options, getpid());
    offload(run, engine, cache, "disk", path);
    remove_session(path, cache.parts().size());
    restart(run, engine, cache);
    save_file(run, engine);
}

void run_child(const Options &options) {
    const Variant &variant = find(options.models.at(0));
    const Model model = make_model(variant.model, options.size);
    const auto prompts = make_prompts(options, model.get());
    Engine engine(model.get(), engine_options(options, variant));
    Channel parent(options.socket);
    if (options.role == "prefill") return run_prefill(engine, prompts, parent);
    engine.evaluate(0, prompts[0]);
    const CacheLayouts cache(engine, share_memory(engine), nullptr);
    const std::string path = session_path(options, getppid());
    const SessionStore store(cache.parts(), prompts[0].size(), path);
    write_positions(path, save(engine, cache, store, 0).positions);
}

}  // namespace

int main(int argc, char **argv) {
    llama_log_set([](ggml_log_level level, const char *text, void *) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
    }, nullptr);
    try {
        const Options options = parse(argc, argv);
        if (!options.role.empty()) {
            run_child(options);
            return EXIT_SUCCESS;
        }
        print_head();
        for (const Variant &variant : variants) {
            if (!options.models.empty() && options.models[0] != variant.name) continue;
            run_variant(options, variant, argv[0]);
        }
        std::puts(all_same() ? "\nEvery continuation has the logits of a single process, bit by bit."
                             : "\nA continuation has other logits than a single process.");
        return all_same() ? EXIT_SUCCESS : EXIT_FAILURE;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
}
