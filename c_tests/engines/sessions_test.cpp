// SPDX-License-Identifier: Apache-2.0
// Sessions of llama.cpp that cannot be saved, loaded or continued: each fails with its reason, and leaves the
// context unchanged.
#include "files.hpp"
#include "handover.hpp"
#include "offload.hpp"
#include "prefixes.hpp"
#include "run.hpp"

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <stdexcept>

namespace {

constexpr std::uint32_t prompt_tokens = 64;  // sums of llama.cpp are equal at cells that are a multiple of this apart
std::filesystem::path parent;

void require(bool condition, const std::string &what) {
    if (!condition) throw std::runtime_error(what);
}

void require_failure(const std::function<void()> &work, const std::string &reason) {
    try {
        work();
    } catch (const std::exception &error) {
        require(std::regex_search(error.what(), std::regex(reason)),
                std::string("failed with '") + error.what() + "', which does not match '" + reason + "'");
        return;
    }
    throw std::runtime_error("did not fail; '" + reason + "' was expected");
}

// A model of two layers, its engine, and a session of 64 tokens in sequence 0.
struct Fixture {
    explicit Fixture(EngineOptions options = {}, const char *kind = "gqa", std::uint32_t heads = 4)
        : model(make_model(kind, size_of(heads), -1)), engine(model.get(), with_context(options)), memory(share_memory(engine)),
          cache(engine, memory, nullptr) {}

    static ModelSize size_of(std::uint32_t heads) {
        ModelSize size;
        size.layers = 2;
        size.heads = heads;
        size.kv_heads = 2;
        size.head_dim = 64;
        return size;
    }
    static EngineOptions with_context(EngineOptions options) {
        if (options.context == EngineOptions().context) options.context = 512;
        return options;
    }
    static std::vector<llama_token> prompt() {
        std::vector<llama_token> tokens(prompt_tokens);
        for (std::uint32_t i = 0; i < prompt_tokens; ++i) tokens[i] = static_cast<llama_token>(i * 37 % 1000);
        return tokens;
    }

    std::vector<float> start() { return engine.evaluate(0, prompt()); }
    Continuation expect() {
        start();
        engine.forget(0);
        return generate(engine, 0, start(), 4);
    }
    void save_to(const std::filesystem::path &directory) {
        engine.forget(0);
        start();
        const SessionStore store(engine, count_cells(engine.positions(0)), directory, SessionStore::Files::write);
        Moved moved;
        write_session(directory, save(engine, cache, store, 0, moved));
    }
    void load_from(const std::filesystem::path &directory, llama_seq_id sequence) {
        const Session session = read_session(directory, engine);
        const SessionStore store(engine, count_cells(session.positions), directory, SessionStore::Files::read);
        Moved moved;
        load(engine, cache, store, sequence, session, moved);
    }
    bool has(llama_seq_id sequence) const {
        return llama_memory_seq_pos_max(llama_get_memory(engine.context()), sequence) >= 0;
    }
    void require_alike(llama_seq_id sequence, const Continuation &expected) {
        require(is_alike(follow(engine, sequence, expected.at(0), expected), false), "the continuation has other logits");
    }

    Model model;
    Engine engine;
    std::vector<CacheMemory> memory;
    CacheLayouts cache;
};

std::string read(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path &path, const std::string &bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::filesystem::path part_of(const std::filesystem::path &directory, const char *name) { return directory / (std::string("0 ") + name); }

void no_tokens() {
    Fixture fixture;
    require_failure([&] { fixture.engine.evaluate(0, {}); }, "there is no token to evaluate");
}

void more_tokens_than_cells() {
    Fixture fixture;
    const auto expected = fixture.expect();
    require_failure([&] { fixture.engine.evaluate(1, std::vector<llama_token>(600, 1)); }, "no free cells for 512 tokens more.*512 cells");
    require(!fixture.has(1), "a part of the prompt is still in the context");
    fixture.engine.forget(0);
    fixture.start();
    fixture.require_alike(0, expected);
}

void an_unknown_sequence() {
    Fixture fixture;
    require_failure([&] { fixture.engine.positions(2); }, "the context has no sequence 2");
    require_failure([&] { fixture.engine.reserve(2, {{}}); }, "the sequence has 0 positions");
    require_failure([&] { fixture.engine.reserve(2, {{0}, {0}}); }, "a model with other caches");
    require(!fixture.has(2), "the sequence is in the context");
}

void a_sequence_that_llama_restored() {
    Fixture fixture;
    fixture.start();
    const auto positions = fixture.engine.positions(0);
    std::vector<std::uint8_t> state(llama_state_seq_get_size(fixture.engine.context(), 0));
    llama_state_seq_get_data(fixture.engine.context(), state.data(), state.size(), 0);
    fixture.engine.restore(0, positions, [&](llama_context *context) {
        return llama_state_seq_set_data(context, state.data(), state.size(), 0) == state.size();
    });
    require_failure([&] { fixture.engine.cell_ids(0, 0); }, "its cells are not known");
}

void cells_that_are_set_aside() {
    Fixture fixture;
    const auto expected = fixture.expect();
    fixture.engine.forget(0);
    fixture.start();
    const CellIds before = fixture.engine.cell_ids(0, 0);
    fixture.engine.set_aside(0);
    require(!fixture.has(0), "the sequence is in the context");
    fixture.start();
    for (const std::uint32_t cell : fixture.engine.cell_ids(0, 0)) {
        require(std::find(before.begin(), before.end(), cell) == before.end(), "a cell is used again");
    }
    fixture.require_alike(0, expected);
}

void a_session_that_is_loaded_twice() {
    const SessionFiles files(parent);
    Fixture fixture;
    const auto expected = fixture.expect();
    fixture.save_to(files.directory());
    fixture.engine.forget(0);
    fixture.load_from(files.directory(), 0);
    fixture.load_from(files.directory(), 1);
    fixture.require_alike(1, expected);
    fixture.require_alike(0, expected);
}

void a_context_of_another_size() {
    const SessionFiles files(parent);
    Fixture fixture;
    const auto expected = fixture.expect();
    fixture.save_to(files.directory());
    EngineOptions options;
    options.context = 1024;
    Fixture larger(options);
    larger.load_from(files.directory(), 0);
    larger.require_alike(0, expected);
}

void a_context_that_is_full() {
    const SessionFiles files(parent);
    Fixture fixture;
    const auto expected = fixture.expect();
    fixture.save_to(files.directory());
    fixture.engine.evaluate(1, std::vector<llama_token>(420, 1));
    require_failure([&] { fixture.load_from(files.directory(), 2); }, "the cache is full");
    require(!fixture.has(2), "the sequence is in the context");
    fixture.require_alike(0, expected);
}

// The rows of both have as many bytes.
void another_type_of_keys() {
    const SessionFiles files(parent);
    Fixture().save_to(files.directory());
    EngineOptions options;
    options.type_k = GGML_TYPE_BF16;
    Fixture other(options);
    require_failure([&] { other.load_from(files.directory(), 0); }, "of another engine: .*cache k f16 v f16.*cache k bf16 v f16");
}

// The caches of both have the same shape.
void another_model() {
    const SessionFiles files(parent);
    Fixture().save_to(files.directory());
    Fixture other({}, "gqa", 8);
    require_failure([&] { other.load_from(files.directory(), 0); }, "of another engine: .*heads 4,.*heads 8,");
}

void a_session_that_is_damaged() {
    const SessionFiles files(parent);
    Fixture fixture;
    fixture.save_to(files.directory());
    const auto path = files.directory() / "session";
    const std::string bytes = read(path);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        write(path, bytes.substr(0, size));
        require_failure([&] { read_session(files.directory(), fixture.engine); }, "session is damaged");
    }
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        std::string other = bytes;
        other[at] ^= 1;
        write(path, other);
        require_failure([&] { read_session(files.directory(), fixture.engine); }, "session is damaged");
    }
    std::filesystem::remove(path);
    require_failure([&] { read_session(files.directory(), fixture.engine); }, "session: No such file or directory");
}

void files_that_are_missing_or_truncated() {
    const SessionFiles files(parent);
    Fixture fixture;
    const auto expected = fixture.expect();
    fixture.save_to(files.directory());
    const auto values = part_of(files.directory(), "values 1");
    const std::string bytes = read(values);
    const auto load = [&] { fixture.load_from(files.directory(), 1); };
    std::filesystem::resize_file(values, bytes.size() - 1);
    require_failure(load, "CORRUPT: .*values 1: the file does not end with the fingerprint");
    std::filesystem::remove(values);
    require_failure(load, "NOT_FOUND: .*values 1");
    require(!std::filesystem::exists(values), "a file of zeroes was created");
    require(!fixture.has(1), "the sequence is in the context");
    write(values, bytes);
    load();
    fixture.require_alike(1, expected);
}

// The file is truncated after it was opened: the transfer fails, though the cells are reserved.
void a_file_truncated_while_it_is_open() {
    const SessionFiles files(parent);
    Fixture fixture;
    fixture.save_to(files.directory());
    const Session session = read_session(files.directory(), fixture.engine);
    const SessionStore store(fixture.engine, count_cells(session.positions), files.directory(), SessionStore::Files::read);
    std::filesystem::resize_file(part_of(files.directory(), "values 1"), 100);
    Moved moved;
    require_failure([&] { load(fixture.engine, fixture.cache, store, 1, session, moved); }, "KVMEM_STATUS_IO");
    require(!fixture.has(1), "a sequence of zeroes is in the context");
}

void memory_of_a_transfer_that_has_ended() {
    Fixture fixture;
    fixture.start();
    const SessionStore store(fixture.engine, count_cells(fixture.engine.positions(0)), SessionStore::Memory::system);
    const Place from{fixture.cache[0], fixture.engine.cell_ids(0, 0)};
    kvmem::Transfer transfer = start_move(from, store.place(0), 0, from.blocks.size());
    transfer.wait();
    const auto before = transfer.info();
    require(!is_in_use(transfer), "the memory is in use");
    require(transfer.poll() && transfer.info().duration == before.duration, "another run was started");
}

void two_writers() {
    const SessionFiles files(parent);
    Fixture fixture;
    fixture.start();
    const auto cells = count_cells(fixture.engine.positions(0));
    const SessionStore store(fixture.engine, cells, files.directory(), SessionStore::Files::write);
    require_failure([&] { SessionStore(fixture.engine, cells, files.directory(), SessionStore::Files::write); }, "KVMEM_STATUS_BUSY");
}

// The last bits of keys and values depend on how many tokens are evaluated together.
void evaluate_blocks(Engine &engine, const std::vector<llama_token> &tokens) {
    for (auto at = tokens.begin(); at != tokens.end(); at += Prefixes::block_tokens) engine.evaluate(0, {at, at + Prefixes::block_tokens});
}

// A prompt of which another process has stored some blocks, evaluated in the same parts by one process.
void continue_prefix(Fixture &fixture, Prefixes &prefixes, const std::vector<llama_token> &prompt, std::size_t expected_tokens) {
    fixture.engine.forget(0);
    Moved moved;
    const std::size_t count = prefixes.load(fixture.engine, fixture.cache, 0, prompt, moved);
    require(count == expected_tokens, std::to_string(count) + " tokens were loaded");
    const auto rest = prompt.begin() + static_cast<std::ptrdiff_t>(count);
    auto logits = fixture.engine.evaluate(0, {rest, prompt.end()});
    Engine other(fixture.model.get(), Fixture::with_context({}));
    evaluate_blocks(other, {prompt.begin(), rest});
    const auto expected = generate(other, 0, other.evaluate(0, {rest, prompt.end()}), 4);
    require(is_alike(follow(fixture.engine, 0, std::move(logits), expected), false), "the continuation has other logits");
}

void a_prompt_that_differs_after_some_blocks() {
    const SessionFiles files(parent);
    Fixture fixture;
    auto prompt = Fixture::prompt();
    evaluate_blocks(fixture.engine, prompt);
    Prefixes prefixes(fixture.engine, "gqa", files.directory(), prompt.size());
    Moved moved;
    require(prefixes.put(fixture.engine, fixture.cache, 0, prompt, moved) == 64, "not all blocks were stored");
    continue_prefix(fixture, prefixes, prompt, 48);  // the last token is evaluated
    prompt[40] += 1;
    continue_prefix(fixture, prefixes, prompt, 32);
    prompt[0] += 1;
    continue_prefix(fixture, prefixes, prompt, 0);
    prompt.resize(7);
    continue_prefix(fixture, prefixes, prompt, 0);
    require(prefixes.put(fixture.engine, fixture.cache, 0, prompt, moved) == 0, "a part of a block was stored");
}

void a_prefix_that_is_damaged() {
    const SessionFiles files(parent);
    Fixture fixture;
    const auto prompt = Fixture::prompt();
    evaluate_blocks(fixture.engine, prompt);
    Moved moved;
    Prefixes(fixture.engine, "gqa", files.directory(), prompt.size()).put(fixture.engine, fixture.cache, 0, prompt, moved);
    const auto path = files.directory() / "values 1" / "blocks.0";
    std::string bytes = read(path);
    bytes[bytes.size() / 4 + 1] ^= 1;  // in the second of four blocks
    write(path, bytes);
    Prefixes prefixes(fixture.engine, "gqa", files.directory(), prompt.size());
    require(prefixes.find(prompt) == 48, "the blocks are not there");
    continue_prefix(fixture, prefixes, prompt, 16);
    require(prefixes.find(prompt) == 16, "a damaged block is still there");
}

void a_prefix_of_another_model() {
    const SessionFiles files(parent);
    Fixture fixture, other({}, "gqa", 8);
    { Prefixes(fixture.engine, "gqa", files.directory(), 64); }
    require_failure([&] { Prefixes(fixture.engine, "gqa 2", files.directory(), 64); }, "model is 'gqa' in the store and 'gqa 2' here");
    require_failure([&] { Prefixes(other.engine, "gqa", files.directory(), 64); }, "engine is '.*heads 4,.* in the store and '.*heads 8,");
}

void a_disk_that_is_full() {
    const SessionFiles files(parent);
    const Session session{"an engine", {{0, 1, 2}}};
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{10, before.rlim_max};
    std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    std::string reason;
    try {
        write_session(files.directory(), session);
    } catch (const std::exception &error) {
        reason = error.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    require(reason.find("session.new: File too large") != reason.npos, "the reason is '" + reason + "'");
    require(!std::filesystem::exists(files.directory() / "session"), "a part of the session was written");
}

struct Case {
    const char *name;
    void (*run)();
};

constexpr Case cases[] = {
    {"no tokens", no_tokens},
    {"more tokens than cells", more_tokens_than_cells},
    {"an unknown sequence", an_unknown_sequence},
    {"a sequence that llama.cpp restored", a_sequence_that_llama_restored},
    {"cells that are set aside", cells_that_are_set_aside},
    {"a session that is loaded twice", a_session_that_is_loaded_twice},
    {"a context of another size", a_context_of_another_size},
    {"a context that is full", a_context_that_is_full},
    {"another type of keys", another_type_of_keys},
    {"another model", another_model},
    {"a session that is damaged", a_session_that_is_damaged},
    {"files that are missing or truncated", files_that_are_missing_or_truncated},
    {"a file truncated while it is open", a_file_truncated_while_it_is_open},
    {"memory of a transfer that has ended", memory_of_a_transfer_that_has_ended},
    {"two writers", two_writers},
    {"a prompt that differs after some blocks", a_prompt_that_differs_after_some_blocks},
    {"a prefix that is damaged", a_prefix_that_is_damaged},
    {"a prefix of another model", a_prefix_of_another_model},
    {"a disk that is full", a_disk_that_is_full},
};

}  // namespace

int main(int argc, char **argv) {
    start_llama();
    parent = argc > 1 ? argv[1] : "/tmp";
    int failed = 0;
    for (const Case &each : cases) {
        try {
            each.run();
            std::printf("ok      %s\n", each.name);
        } catch (const std::exception &error) {
            std::printf("FAILED  %s: %s\n", each.name, error.what());
            ++failed;
        }
        std::fflush(stdout);
    }
    std::printf("%d failed\n", failed);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
