// SPDX-License-Identifier: Apache-2.0
// A session of a model continues in another process, or after it was offloaded, with the same tokens.
#include "roles.hpp"
#include "steps.hpp"
#include "table.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace {

void run_variant(const Options &options, const Variant &variant, const char *program) {
    const Run run = prepare(options, variant, program);
    Engine engine = run.engine();
    engine.evaluate(1, std::vector<llama_token>(other_tokens, 1));  // occupies the first cells
    const auto memory = share_memory(engine);
    hand_over(run, engine, memory);
    lose_prefill(run, engine, memory);
    const CacheLayouts cache(engine, memory, nullptr);
    offload(run, engine, cache);
    restart(run);
    find_prefix(run, engine);
    use_state_functions(run, engine);
}

void write_model(const Options &options) {
    // llama.cpp does not report failures.
    if (!std::ofstream(options.write_model)) {
        throw std::system_error(errno, std::generic_category(), "cannot write " + options.write_model);
    }
    const Model model = make_model("gqa", options.size, options.gpu);
    llama_model_save_to_file(model.get(), options.write_model.c_str());
}

int run_all(const Options &options, const char *program) {
    if (options.prompts != 2) throw std::runtime_error("the table has two sequences: --prompts=1 is for row 20 of the benches");
    if (!options.write_model.empty()) write_model(options);
    print_head();
    std::vector<Variant> variants = all_variants();
    if (!options.models.empty()) variants.clear();
    for (const std::string &name : options.models) variants.push_back(find_variant(name));
    for (const Variant &variant : variants) run_variant(options, variant, program);
    const bool on_gpu = options.gpu >= 0;
    std::printf("\n%s\n", verdict(on_gpu).c_str());
    return all_alike(on_gpu) ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char **argv) {
    start_llama();
    try {
        Options options;
        parse(argc, argv, options);
        if (options.role.empty()) return run_all(options, argv[0]);
        return run_role(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "llama_handover: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
