// SPDX-License-Identifier: Apache-2.0
// Row 20: moves a session of llama.cpp to another process, to host memory and to files, alternately by kvmem and by
// llama.cpp's own state functions. Each continuation is compared with that of a process that moved nothing.
#include "common/results.hpp"

#include "files.hpp"
#include "offload.hpp"
#include "roles.hpp"
#include "run.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>

namespace {

using bench::candidate;

struct Settings {
    Options options;
    std::string output;
    int rounds = 9;
};

Settings read(int argc, char **argv) {
    Settings settings;
    std::vector<char *> rest = {argv[0]};
    Options &options = settings.options;
    options.size.layers = 32;
    options.size.heads = 8;  // halves the time of the prompt; the cache has the same size
    options.tokens = 2048;
    options.prompts = 1;
    bool is_quick = false;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.rfind("--output=", 0) == 0) {
            settings.output = argument.substr(9);
        } else if (argument == "--quick") {
            is_quick = true;
        } else if (argument.rfind("--rounds=", 0) == 0) {
            settings.rounds = std::stoi(argument.substr(9));
        } else {
            rest.push_back(argv[i]);
        }
    }
    if (is_quick) {
        options.tokens = 256;
        options.size.layers = 4;
        settings.rounds = 3;
    }
    parse(static_cast<int>(rest.size()), rest.data(), options);
    if (options.models.empty()) options.models = {"gqa"};
    return settings;
}

// Milliseconds.
template <typename Work>
double time(Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The session, and the buffers that both methods reuse.
class Bench {
public:
    explicit Bench(const Settings &settings)
        : settings_(settings), run_(prepare(settings.options, find_variant(settings.options.models.at(0)), "20_engine")),
          engine_(run_.model.get(), engine_options(settings.options, run_.variant)), results_(settings.output) {
        engine_.evaluate(1, std::vector<llama_token>(other_tokens, 1));  // occupies the first cells
        memory_ = share_memory(engine_);
        cache_.emplace(engine_, memory_, nullptr);
    }

    // After each step, the session is sequence 0 of the context.
    void measure() {
        to_process();
        to_memory();
        to_files();
    }

private:
    // Adds a row with cells that were reserved before the time, and if there is a fourth candidate, one with cells that
    // are reserved within it.
    void add(const char *step, const std::string &path, const char *reference, const std::vector<candidate> &candidates) {
        const auto samples = bench::alternate(settings_.rounds, candidates);
        const bool reserves = candidates.size() == 4;
        bench::parameters parameters = {{"step", step}, {"path", path}, {"tokens", settings_.options.tokens},
                                        {"layers", settings_.options.size.layers}, {"bytes", bytes_}};
        if (reserves) parameters.emplace_back("cells", "reserved before");
        // A memcpy of host memory is not a ceiling for transfers of a GPU.
        const bench::samples ceiling = has_gpu() ? bench::samples() : samples[2];
        results_.add({"20-engine", parameters, samples[0], reference, samples[1], ceiling, "ms"});
        if (!reserves) return;
        parameters.back().second = "reserved within the time";
        results_.add({"20-engine", parameters, samples[3], reference, samples[1], ceiling, "ms"});
    }

    bool has_gpu() const { return settings_.options.gpu >= 0; }

    // The ceiling over TCP: the bytes through a plain socket.
    candidate send_over_socket() {
        return [this] {
            const auto ends = connect_over_loopback();
            Channel near(ends[0]), far(ends[1]);
            return time([&] {
                std::thread sender([&] { far.send({reinterpret_cast<const char *>(state_.data()), state_.size()}); });
                near.receive_bytes(other_.data(), near.receive_size());
                sender.join();
            });
        };
    }

    candidate copy() {
        return [this] { return time([this] { std::memcpy(other_.data(), state_.data(), state_.size()); }); };
    }

    void check(std::vector<float> logits) {
        const Likeness likeness = follow(engine_, 0, std::move(logits), run_.alone);
        if (!is_alike(likeness, has_gpu())) throw std::runtime_error("a continuation differs from that of a single process");
        engine_.forget(0);
    }

    void to_process() {
        const bool nixl = settings_.options.nixl;
        hand_over(Child::Socket::local, nixl ? std::vector<Link>{Link::mapped, Link::nixl} : std::vector<Link>{Link::mapped});
        // Over TCP, for both kvmem and llama.cpp.
        if (nixl && !has_gpu()) hand_over(Child::Socket::tcp, {Link::nixl_tcp});
    }

    void hand_over(Child::Socket socket, const std::vector<Link> &links) {
        Child child(run_.child("prefill"), socket);
        Prefill prefill(engine_, child.channel(), memory_);
        for (const Link link : links) {
            prefill.connect(link);
            Moved moved;
            std::vector<float> logits;
            const candidate pull = [&] {
                prefill.reserve(0, 0);
                return time([&] { logits = prefill.pull(0, 0, moved = {}); });
            };
            const candidate reserve_and_pull = [&] {
                return time([&] {
                    prefill.reserve(0, 0);
                    logits = prefill.pull(0, 0, moved = {});
                });
            };
            Moved ignored;
            const candidate state = [&] {
                return time([&] { prefill.take_state(0, 0, positions_, ignored); });
            };
            pull();
            if (state_.empty()) note_session(moved);
            check(logits);
            const bool is_tcp = socket == Child::Socket::tcp;
            add("handover", moved.path + (is_tcp ? ", TCP" : ""),
                is_tcp ? "llama.cpp state, TCP socket" : "llama.cpp state, local socket",
                {pull, state, is_tcp ? send_over_socket() : copy(), reserve_and_pull});
            pull();
            check(logits);
            pull();
        }
        prefill.disconnect();
        child.finish();
    }

    void note_session(const Moved &moved) {
        bytes_ = moved.bytes;
        positions_ = engine_.positions(0);
        state_.resize(llama_state_seq_get_size(engine_.context(), 0));
        other_.resize(state_.size());
    }

    void to_memory() {
        const auto memory = has_gpu() ? SessionStore::Memory::pinned : SessionStore::Memory::system;
        const SessionStore store(engine_, count_cells(positions_), memory);
        auto *state = state_.data();
        const auto size = state_.size();
        add_both(has_gpu() ? "pinned memory" : "host memory", "llama.cpp get_data", "llama.cpp set_data", store,
            [&] { llama_state_seq_get_data(engine_.context(), state, size, 0); },
            [&](llama_context *context) { return llama_state_seq_set_data(context, state, size, 0) == size; });
    }

    void to_files() {
        const SessionFiles files(settings_.options.directory);
        const SessionStore store(engine_, count_cells(positions_), files.directory(), SessionStore::Files::write);
        const std::string path = files.directory() / "state";
        const auto &prompt = run_.prompts[0];
        std::vector<llama_token> tokens(prompt.size());
        add_both("file", "llama.cpp save_file", "llama.cpp load_file", store,
            [&] { llama_state_seq_save_file(engine_.context(), path.c_str(), 0, prompt.data(), prompt.size()); },
            [&](llama_context *context) {
                std::size_t count = 0;
                return llama_state_seq_load_file(context, path.c_str(), 0, tokens.data(), tokens.size(), &count) > 0;
            });
    }

    template <typename Save, typename Load>
    void add_both(const std::string &where, const char *saver, const char *loader, const SessionStore &store, Save save_state,
                  Load load_state) {
        Session session;
        Moved moved;
        const candidate save_cells = [&] {
            return time([&] { session = save(engine_, *cache_, store, 0, moved = {}); });
        };
        save_cells();
        const std::string path = where + ": " + moved.path;
        add("offload", path, saver, {save_cells, [&] { return time(save_state); }, copy()});
        const candidate load_cells = [&] {
            engine_.reserve(0, session.positions);
            return time([&] { load_reserved(engine_, *cache_, store, 0, moved = {}); });
        };
        const candidate reserve_and_load = [&] {
            return time([&] { load(engine_, *cache_, store, 0, session, moved = {}); });
        };
        const candidate restore = [&] {
            return time([&] { engine_.restore(0, positions_, load_state); });
        };
        add("restore", path, loader, {load_cells, restore, copy(), reserve_and_load});
        load_cells();
        check(run_.alone[0]);
        load_cells();
    }

    const Settings &settings_;
    const Run run_;
    Engine engine_;
    bench::results results_;
    std::vector<CacheMemory> memory_;
    std::optional<CacheLayouts> cache_;
    Positions positions_;
    std::vector<std::uint8_t> state_, other_;
    std::uint64_t bytes_ = 0;
};

}  // namespace

int main(int argc, char **argv) {
    start_llama();
    try {
        const Settings settings = read(argc, argv);
        if (!settings.options.role.empty()) {
            return run_role(settings.options);
        }
        Bench(settings).measure();
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "20_engine: %s\n", error.what());
        return 1;
    }
}
