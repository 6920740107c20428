// SPDX-License-Identifier: Apache-2.0
#include "roles.hpp"

#include "handover.hpp"
#include "offload.hpp"
#include "prefixes.hpp"
#include "run.hpp"
#include "table.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace {

void save_session(Engine &engine, const std::vector<llama_token> &prompt, const std::string &directory) {
    engine.evaluate(0, prompt);
    const CacheLayouts cache(engine, share_memory(engine), nullptr);
    remove_session(directory);
    const SessionStore store(engine, count_cells(engine.positions(0)), directory, SessionStore::Files::write);
    Moved moved;
    write_session(directory, save(engine, cache, store, 0, moved));
}

// Evaluates the tokens of the parent as sequence 0, until a list is empty.
void evaluate_for(Engine &engine, Channel &parent) {
    for (auto tokens = parent.receive_list<llama_token>(); !tokens.empty(); tokens = parent.receive_list<llama_token>()) {
        parent.send_list(engine.evaluate(0, tokens));
    }
}

void send_moved(Channel &parent, const Moved &moved, double seconds) {
    parent.send(moved.path);
    parent.send_list(std::vector<std::uint64_t>{moved.bytes});
    parent.send_list(std::vector<double>{seconds});
}

// Another process has saved the session and ended. Continues it by the tokens of the parent, until one list is empty.
void continue_session(Engine &engine, const std::string &directory, Channel &parent) {
    engine.evaluate(1, std::vector<llama_token>(other_tokens, 1));  // occupies the first cells
    const CacheLayouts cache(engine, share_memory(engine), nullptr);
    const Session session = read_session(directory, engine);
    engine.reserve(0, session.positions);
    Moved moved;
    const Stopwatch stopwatch;
    const SessionStore store(engine, count_cells(session.positions), directory, SessionStore::Files::read);
    load_reserved(engine, cache, store, 0, moved);
    const double seconds = stopwatch.seconds();
    send_moved(parent, moved, seconds);
    evaluate_for(engine, parent);
}

// Stores the prefix of a prompt, and waits until the parent kills this process.
void put_prefix(Engine &engine, const Options &options, const Variant &variant, const std::vector<llama_token> &prompt, Channel &parent) {
    engine.evaluate(0, prompt);
    const CacheLayouts cache(engine, share_memory(engine), nullptr);
    Prefixes prefixes(engine, variant.model, options.files, prompt.size() * 2);
    Moved moved;
    const Stopwatch stopwatch;
    prefixes.put(engine, cache, 0, prompt, moved);
    send_moved(parent, moved, stopwatch.seconds());
    parent.receive();
}

// Another process has stored the prefix and was killed.
void find_prefix(Engine &engine, const Options &options, const Variant &variant, const std::vector<llama_token> &prompt, Channel &parent) {
    engine.evaluate(1, std::vector<llama_token>(other_tokens, 1));  // occupies the first cells
    const CacheLayouts cache(engine, share_memory(engine), nullptr);
    Moved moved;
    const Stopwatch stopwatch;
    Prefixes prefixes(engine, variant.model, options.files, prompt.size() * 2);
    const std::size_t count = prefixes.load(engine, cache, 0, prompt, moved);
    send_moved(parent, moved, stopwatch.seconds());
    parent.send_list(std::vector<std::uint64_t>{count});
    parent.send_list(engine.evaluate(0, {prompt.begin() + static_cast<std::ptrdiff_t>(count), prompt.end()}));
    evaluate_for(engine, parent);
}

void run(const Options &options, Channel &parent) {
    const Variant variant = find_variant(options.models.at(0));
    const Model model = make_model(variant.model, options.size, options.gpu);
    const Prompts prompts = make_prompts(options, model.get());
    Engine engine(model.get(), engine_options(options, variant));
    if (options.role == "prefill") return run_prefill(engine, prompts, parent);
    if (options.role == "save") return save_session(engine, prompts[0], options.files);
    if (options.role == "continue") return continue_session(engine, options.files, parent);
    if (options.role == "put") return put_prefix(engine, options, variant, prompts[0], parent);
    if (options.role == "find") return find_prefix(engine, options, variant, prompts[0], parent);
    throw std::runtime_error("there is no role '" + options.role + "'");
}

}  // namespace

double receive_loaded(Channel &child, Moved &moved) {
    moved.path = child.receive();
    moved.bytes = child.receive_list<std::uint64_t>().at(0);
    return child.receive_list<double>().at(0);
}

int run_role(const Options &options) {
    Channel parent(options.socket);
    try {
        run(options, parent);
        return EXIT_SUCCESS;
    } catch (const std::exception &error) {
        // Printed before the socket is closed, because the parent then kills this process.
        std::fprintf(stderr, "%s: %s\n", options.role.c_str(), error.what());
        return EXIT_FAILURE;
    }
}
