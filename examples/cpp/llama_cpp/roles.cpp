// SPDX-License-Identifier: Apache-2.0
#include "roles.hpp"

#include "handover.hpp"
#include "offload.hpp"
#include "run.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace {

void save_session(Engine &engine, const std::vector<llama_token> &prompt, const std::string &directory) {
    engine.evaluate(0, prompt);
    const CacheLayouts cache(engine, share_memory(engine), nullptr);
    const SessionStore store(engine, count_cells(engine.positions(0)), directory);
    Moved moved;
    write_session(directory, save(engine, cache, store, 0, moved));
}

void run(const Options &options, Channel &parent) {
    const Variant variant = find_variant(options.models.at(0));
    const Model model = make_model(variant.model, options.size, options.gpu);
    const Prompts prompts = make_prompts(options, model.get());
    Engine engine(model.get(), engine_options(options, variant));
    if (options.role == "prefill") return run_prefill(engine, prompts, parent);
    if (options.role == "save") return save_session(engine, prompts[0], options.files);
    throw std::runtime_error("there is no role '" + options.role + "'");
}

}  // namespace

int run_role(const Options &options) {
    Channel parent(options.socket);
    try {
        run(options, parent);
        return EXIT_SUCCESS;
    } catch (const std::exception &error) {
        // Before the socket is closed: the parent kills this process then.
        std::fprintf(stderr, "%s: %s\n", options.role.c_str(), error.what());
        return EXIT_FAILURE;
    }
}
