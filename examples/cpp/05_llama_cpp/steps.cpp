// SPDX-License-Identifier: Apache-2.0
#include "steps.hpp"

#include "files.hpp"
#include "offload.hpp"
#include "prefixes.hpp"
#include "roles.hpp"
#include "table.hpp"

#include <stdexcept>

namespace {

struct NamedLink {
    Link link;
    const char *name;
};

std::vector<NamedLink> links_of(const Options &options) {
    std::vector<NamedLink> links = {{Link::mapped, "mapped"}};
    if (options.nixl) links.push_back({Link::nixl, "NIXL"});
    if (options.nixl && options.gpu < 0) links.push_back({Link::nixl_tcp, "NIXL, TCP"});
    return links;
}

Likeness continue_alone(const Run &run, Engine &engine, std::vector<float> logits) {
    return follow(engine, 0, std::move(logits), run.alone);
}

// Continues sequence 0 of prefill as 0, and 1 as 2.
Likeness continue_both(const Run &run, Engine &engine, std::vector<float> first, std::vector<float> second) {
    const Likeness zero = follow(engine, 0, std::move(first), run.expected[0]);
    const Likeness two = follow(engine, 2, std::move(second), run.expected[1]);
    engine.forget(2);
    return combine(zero, two);
}

}  // namespace

void hand_over(const Run &run, Engine &engine, const std::vector<CacheMemory> &memory) {
    Child child(run.child("prefill"));
    Prefill prefill(engine, child.channel(), memory);
    bool was_reserved_before = false;
    for (const auto &[link, name] : links_of(run.options)) {
        prefill.connect(link);
        Moved ignored;
        prefill.reserve(0, 0);
        prefill.pull(0, 0, ignored);  // connects
        const Stopwatch reserving;
        prefill.reserve(0, 0);
        const double reserved = reserving.seconds();
        Moved moved;
        const Stopwatch pulling;
        auto first = prefill.pull(0, 0, moved);
        const double pulled = pulling.seconds();
        prefill.reserve(1, 2);
        auto second = prefill.pull(1, 2, ignored);
        const Likeness likeness = continue_both(run, engine, std::move(first), std::move(second));
        if (!was_reserved_before) print_row(run.variant.name, "reserve cells", {0, "llama.cpp, zeroes"}, reserved);
        was_reserved_before = true;
        print_row(run.variant.name, std::string("handover, ") + name, moved, pulled, likeness);
    }
    const Positions first_positions = prefill.positions(0), second_positions = prefill.positions(1);
    Moved moved, ignored;
    prefill.take_state(0, 0, first_positions, ignored);  // the first use of its buffers
    const Stopwatch taking;
    auto first = prefill.take_state(0, 0, first_positions, moved);
    const double taken = taking.seconds();
    auto second = prefill.take_state(1, 2, second_positions, ignored);
    print_row(run.variant.name, "llama.cpp state, socket", moved, taken,
              continue_both(run, engine, std::move(first), std::move(second)));
    prefill.disconnect();
    child.finish();
}

namespace {

// Pulls from a prefill process that ends during the handover. Evaluates the prompt here if the pull fails.
void lose(const Run &run, Engine &engine, const std::vector<CacheMemory> &memory, Link link, const char *step,
          const std::function<Prefill::Halfway(Child &)> &accident, bool must_fail) {
    Child child(run.child("prefill"));
    Prefill prefill(engine, child.channel(), memory);
    prefill.connect(link);
    prefill.reserve(0, 0);
    const Prefill::Halfway halfway = accident(child);
    Moved moved;
    const Stopwatch stopwatch;
    std::vector<float> logits;
    bool has_failed = false;
    try {
        logits = prefill.pull(0, 0, moved, halfway);
    } catch (const std::exception &error) {
        has_failed = true;
        moved = {0, std::string("evaluated here: ") + error.what()};
        logits = engine.evaluate(0, run.prompts[0]);
    }
    const double seconds = stopwatch.seconds();
    if (has_failed != must_fail) {
        throw std::logic_error(must_fail ? "a process that was killed handed over its cache"
                                         : "a mapped cache was lost with its process");
    }
    print_row(run.variant.name, step, moved, seconds, continue_alone(run, engine, std::move(logits)));
}

}  // namespace

void lose_prefill(const Run &run, Engine &engine, const std::vector<CacheMemory> &memory) {
    const auto kill_before = [](Child &child) {
        child.kill();
        return Prefill::Halfway{};
    };
    lose(run, engine, memory, Link::mapped, "prefill killed before", kill_before, true);
    const auto kill_between = [](Child &child) {
        return Prefill::Halfway{[&child] { child.kill(); }, [] {}};
    };
    // Mapped host memory remains until its last user closes it. GPU memory is freed when the process that allocated it
    // ends.
    if (run.options.gpu < 0) lose(run, engine, memory, Link::mapped, "prefill killed, mapped", kill_between, false);
    if (!run.options.nixl || run.options.gpu >= 0) return;
    // Over TCP, a stopped process sends nothing, so the second half is in flight when it is killed.
    const auto kill_during = [](Child &child) {
        return Prefill::Halfway{[&child] { child.freeze(); }, [&child] { child.kill(); }};
    };
    lose(run, engine, memory, Link::nixl_tcp, "prefill killed, TCP", kill_during, true);
}

namespace {

// The cells of sequence 0, group by group.
std::vector<CellIds> all_cells(const Engine &engine) {
    std::vector<CellIds> cells;
    for (std::size_t group = 0; group < engine.groups().size(); ++group) cells.push_back(engine.cell_ids(0, group));
    return cells;
}

void offload_to(const Run &run, Engine &engine, const CacheLayouts &cache, const char *name, const SessionStore &store) {
    engine.forget(0);
    auto logits = engine.evaluate(0, run.prompts[0]);
    Moved ignored, left, came;
    save(engine, cache, store, 0, ignored);  // the first use of the store's memory
    const Stopwatch leaving;
    const Session session = save(engine, cache, store, 0, left);
    const double left_after = leaving.seconds();
    const auto cells = all_cells(engine);
    engine.forget(0);
    engine.evaluate(2, std::vector<llama_token>(other_tokens, 1));  // takes its cells
    engine.reserve(0, session.positions);
    if (all_cells(engine) == cells) throw std::logic_error("the session was restored to the same cells, so the test proves nothing");
    const Stopwatch coming;
    load_reserved(engine, cache, store, 0, came);
    const double came_after = coming.seconds();
    const Likeness likeness = continue_alone(run, engine, std::move(logits));
    engine.forget(2);
    print_row(run.variant.name, std::string("offload to ") + name, left, left_after, likeness);
    print_row(run.variant.name, std::string("restore from ") + name, came, came_after, likeness);
}

// Another sequence generates while the session is offloaded.
void offload_beside(const Run &run, Engine &engine, const CacheLayouts &cache, const SessionStore &store) {
    engine.forget(0);
    auto logits = engine.evaluate(0, run.prompts[0]);
    auto others = engine.evaluate(2, std::vector<llama_token>(other_tokens, 1));
    Moved moved;
    const Stopwatch stopwatch;
    Leaving leaving(engine, cache, store, 0);
    generate(engine, 2, std::move(others), run.options.generate);
    const Session session = leaving.finish(moved);
    const double seconds = stopwatch.seconds();
    engine.forget(2);
    engine.forget(0);
    Moved ignored;
    load(engine, cache, store, 0, session, ignored);
    const std::string step = "offload beside " + std::to_string(run.options.generate) + " tokens";
    print_row(run.variant.name, step, moved, seconds, continue_alone(run, engine, std::move(logits)));
}

std::vector<std::size_t> cells_of(Engine &engine, const std::vector<llama_token> &prompt) {
    engine.forget(0);
    engine.evaluate(0, prompt);
    return count_cells(engine.positions(0));
}

}  // namespace

void offload(const Run &run, Engine &engine, const CacheLayouts &cache) {
    const auto cells = cells_of(engine, run.prompts[0]);
    const bool has_gpu = run.options.gpu >= 0;
    const SessionStore memory(engine, cells, has_gpu ? SessionStore::Memory::pinned : SessionStore::Memory::system);
    offload_to(run, engine, cache, has_gpu ? "pinned memory" : "host memory", memory);
    offload_beside(run, engine, cache, memory);
    const SessionFiles files(run.options.directory);
    offload_to(run, engine, cache, "disk", SessionStore(engine, cells, files.directory(), SessionStore::Files::write));
}

namespace {

// The arguments of a child that has the session or the stores in these files.
std::vector<std::string> child_with(const Run &run, const char *role, const SessionFiles &files) {
    auto arguments = run.child(role);
    arguments.push_back("--files=" + files.directory().string());
    return arguments;
}

// Continues sequence 0 of a child, and ends the child.
Likeness follow_in(Child &child, std::vector<float> logits, const Continuation &expected) {
    Channel &channel = child.channel();
    const auto evaluate = [&](llama_token token) {
        channel.send_list(std::vector<llama_token>{token});
        return channel.receive_list<float>();
    };
    const Likeness likeness = follow(evaluate, std::move(logits), expected);
    channel.send({});
    child.finish();
    return likeness;
}

}  // namespace

void restart(const Run &run) {
    const SessionFiles files(run.options.directory);
    Child(child_with(run, "save", files)).finish();
    Child next(child_with(run, "continue", files));
    Moved moved;
    const double seconds = receive_loaded(next.channel(), moved);
    // The text so far is known, and so is the first token.
    const Likeness likeness = follow_in(next, run.alone[0], run.alone);
    print_row(run.variant.name, "restart from files", moved, seconds, likeness);
}

void find_prefix(const Run &run, Engine &engine) {
    if (!has_prefixes(engine)) return;
    const SessionFiles files(run.options.directory);
    const auto &prompt = run.prompts[0];
    Moved put, found;
    double put_after = 0;
    {
        Child first(child_with(run, "put", files));
        put_after = receive_loaded(first.channel(), put);
        first.kill();
    }
    Child next(child_with(run, "find", files));
    const double found_after = receive_loaded(next.channel(), found);
    const auto count = next.channel().receive_list<std::uint64_t>().at(0);
    if (count != (prompt.size() - 1) / Prefixes::block_tokens * Prefixes::block_tokens) throw std::logic_error("not all blocks were found");
    auto logits = next.channel().receive_list<float>();
    // The last bits of logits depend on how a prompt is divided, so a single process evaluates the same parts.
    engine.forget(0);
    const auto rest = prompt.begin() + static_cast<std::ptrdiff_t>(count);
    const Stopwatch prefill;
    engine.evaluate(0, {prompt.begin(), rest});
    const double evaluated_after = prefill.seconds();
    const Continuation expected = generate(engine, 0, engine.evaluate(0, {rest, prompt.end()}), run.options.generate);
    const Likeness likeness = follow_in(next, std::move(logits), expected);
    print_row(run.variant.name, "put prefix into store", put, put_after);
    print_row(run.variant.name, "killed, found in store", found, found_after, likeness);
    print_row(run.variant.name, "evaluate prefix", {0, "llama.cpp"}, evaluated_after);
}

void use_state_functions(const Run &run, Engine &engine) {
    const SessionFiles files(run.options.directory);
    const std::string path = files.directory() / "state";
    const auto &prompt = run.prompts[0];
    engine.forget(0);
    engine.evaluate(0, prompt);
    const Positions positions = engine.positions(0);
    Moved moved{0, "llama.cpp state file"};
    const Stopwatch leaving;
    moved.bytes = llama_state_seq_save_file(engine.context(), path.c_str(), 0, prompt.data(), prompt.size());
    const double left = leaving.seconds();
    std::vector<llama_token> tokens(prompt.size());
    const Stopwatch coming;
    engine.restore(0, positions, [&](llama_context *context) {
        std::size_t count = 0;
        return llama_state_seq_load_file(context, path.c_str(), 0, tokens.data(), tokens.size(), &count) > 0;
    });
    const double came = coming.seconds();
    const Likeness likeness = continue_alone(run, engine, run.alone[0]);
    print_row(run.variant.name, "llama.cpp save_file", moved, left, likeness);
    print_row(run.variant.name, "llama.cpp load_file", moved, came, likeness);
}
