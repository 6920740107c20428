// SPDX-License-Identifier: Apache-2.0
// The whole job of an engine: decode asks two ranks of prefill for requests, each of which has half of the heads in small blocks, and moves
// the tokens to its own larger blocks with all heads. Decode has one queue for events of the directory, messages, and ends of runs. One
// rank crashes, and its successor, under the same name, is asked for what is missing.
#include <kvmem.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 30s;
/// After this time a run ends, whatever the peer does, and its part is asked for again.
constexpr auto run_timeout = 5s;
constexpr std::uint64_t num_ranks = 2, num_layers = 4, num_heads = 8, heads_per_rank = num_heads / num_ranks, head_size = 64;
constexpr std::uint64_t prefill_page = 16, decode_page = 64; // tokens of a block
constexpr std::uint32_t num_requests = 4, num_blocks = 64;
/// The exit status of a process that stands for one that has crashed.
constexpr int crashed = 3;

std::string name_of(std::uint64_t rank) { return "prefill-" + std::to_string(rank); }

std::uint64_t num_tokens(std::uint32_t request) { return 100 + 10 * request; }

std::uint64_t pages(std::uint32_t request, std::uint64_t page) { return (num_tokens(request) + page - 1) / page; }

/// Stands for a row of the cache: the first bytes of a head of a token.
std::uint32_t expected(std::uint32_t request, std::uint64_t token, std::uint64_t layer, std::uint64_t head) {
    return static_cast<std::uint32_t>(((request * 1000 + token) * num_layers + layer) * num_heads + head);
}

kvmem::Agent start_agent(const std::string &name) {
    auto agent = kvmem::Agent::create(name);
    agent.create_backend("UCX");
    return agent;
}

/// Prefill and decode have another order of axes, too.
kvmem::Layout build_cache(const kvmem::Agent &agent, const char *order, std::uint64_t page_size, std::uint64_t heads) {
    const kvmem::LayoutConfig config = {.num_blocks = num_blocks, .num_layers = num_layers, .outer_dim = 2, .page_size = page_size,
        .inner_dim = heads * head_size, .dtype_width = 2, .order = order, .num_heads = heads};
    return kvmem::Layout::build(config, kvmem::SystemOptions(), &agent);
}

std::uint32_t *row(const kvmem::Layout &cache, const std::vector<std::uint32_t> &table, std::uint64_t page, std::uint64_t token,
    std::uint64_t layer, std::uint64_t head) {
    const auto range = cache.row(table[token / page], layer, 0, token % page, head);
    return reinterpret_cast<std::uint32_t *>(static_cast<std::uintptr_t>(range.address));
}

/// Numbers with blanks between them.
std::vector<std::uint32_t> numbers(std::string_view text) {
    std::vector<std::uint32_t> found;
    for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) at = std::from_chars(at, end, found.emplace_back()).ptr;
    return found;
}

// ---- a rank of prefill ----

class Prefill {
public:
    Prefill(const std::string &folder, std::uint64_t rank)
        : rank_(rank), directory_(kvmem::Directory::create({.folder = folder})), agent_(start_agent(name_of(rank))) {
        directory_.publish(agent_, {{"cache", &cache_}}, patience);
        directory_.wait_for("decode", patience).load(agent_);
        for (std::uint32_t block = 0; block < num_blocks; ++block) free_.push_back(block);
    }

    /// Until decode has all requests, or up to this one.
    bool run(std::optional<std::uint32_t> last) {
        for (;;)
            for (const auto &message : agent_.take_notifications(patience)) {
                const std::string_view text = message.text();
                if (text == "end") return true;
                const std::uint32_t request = numbers(text.substr(text.find(' ') + 1)).front();
                text.starts_with("compute") ? compute(request) : release(request);
                if (request == last) return false;
            }
    }

private:
    /// Fills blocks of this rank's heads, and sends their ids.
    void compute(std::uint32_t request) {
        release(request); // if decode asks again
        std::vector<std::uint32_t> &table = tables_[request];
        for (; table.size() < pages(request, prefill_page); free_.pop_back()) table.push_back(free_.back());
        for (std::uint64_t token = 0; token < num_tokens(request); ++token)
            for (std::uint64_t layer = 0; layer < num_layers; ++layer)
                for (std::uint64_t head = 0; head < heads_per_rank; ++head)
                    *row(cache_, table, prefill_page, token, layer, head) = expected(request, token, layer, rank_ * heads_per_rank + head);
        auto text = std::to_string(request);
        for (const std::uint32_t block : table) text.append(" ").append(std::to_string(block));
        agent_.notify("decode", text);
    }

    void release(std::uint32_t request) {
        for (const std::uint32_t block : tables_[request]) free_.push_back(block);
        tables_.erase(request);
    }

    std::uint64_t rank_;
    kvmem::Directory directory_;
    kvmem::Agent agent_;
    kvmem::Layout cache_ = build_cache(agent_, "LBOHNC", prefill_page, heads_per_rank);
    std::vector<std::uint32_t> free_;
    std::map<std::uint32_t, std::vector<std::uint32_t>> tables_;
};

// ---- decode ----

class Decode {
public:
    explicit Decode(const std::string &folder) : directory_(kvmem::Directory::create({.folder = folder})) {
        directory_.report_events(&queue_);
        agent_.report_notifications(&queue_);
        directory_.publish(agent_, {}, patience); // prefill needs it to send messages
        for (std::uint64_t rank = 0; rank < num_ranks; ++rank) directory_.watch(name_of(rank), patience);
        for (std::uint32_t request = 0, block = 0; request < num_requests; ++request)
            for (std::uint64_t page = 0; page < pages(request, decode_page); ++page) tables_[request].push_back(block++);
    }

    void run() {
        std::array<kvmem::Completion, 16> space;
        while (num_done_ < num_requests * num_ranks) {
            const auto completions = queue_.wait_for(space, patience);
            if (completions.empty()) throw std::runtime_error("decode has waited in vain");
            for (const auto &one : completions) handle(one);
        }
        check();
        for (std::uint64_t rank = 0; rank < num_ranks; ++rank) agent_.notify(name_of(rank), "end");
    }

private:
    /// What one rank has of one request.
    struct Part {
        std::vector<std::uint32_t> blocks; // of prefill, once they are filled
        std::optional<kvmem::Transfer> transfer; // as long as it may use the blocks of decode
        bool is_done = false;
    };

    void handle(const kvmem::Completion &completion) {
        switch (completion.kind) {
        case kvmem::CompletionKind::events:
            for (const auto &event : directory_.take_events(0s)) follow(event);
            break;
        case kvmem::CompletionKind::notifications:
            for (const auto &message : agent_.take_notifications(0s)) note_blocks(message);
            break;
        case kvmem::CompletionKind::run_ended: end(completion); break;
        default: break;
        }
        // The end of a run says it, or a completion of its own after that: a run that has timed out may still write.
        if (completion.released) parts_[completion.user_data].transfer.reset();
        start_transfers();
    }

    /// A rank is there, for the first time or again: it is asked for all that is missing.
    void follow(const kvmem::DirectoryEvent &event) {
        if (event.change != kvmem::DirectoryChange::published && event.change != kvmem::DirectoryChange::restarted) return;
        const std::uint64_t rank = event.agent == name_of(0) ? 0 : 1;
        if (ranks_[rank]) std::printf("%s is back\n", name_of(rank).c_str());
        const auto entry = directory_.look_up(event.agent, patience);
        entry.load(agent_);
        kvmem::OpenOptions options;
        options.agent = &agent_;
        options.flags = kvmem::OpenFlag::remote;
        ranks_[rank] = entry.open_layout("cache", options, patience);
        for (std::uint32_t request = 0; request < num_requests; ++request)
            if (!parts_[request * num_ranks + rank].is_done) ask(request, rank);
    }

    void ask(std::uint32_t request, std::uint64_t rank) {
        parts_[request * num_ranks + rank].blocks.clear();
        tell(rank, "compute", request);
    }

    void tell(std::uint64_t rank, const std::string &what, std::uint32_t request) try {
        agent_.notify(name_of(rank), what + " " + std::to_string(request));
    } catch (const kvmem::Error &error) {
        std::printf("%s\n", error.what()); // it has ended, and an event follows when it is back
    }

    void note_blocks(const kvmem::Notification &message) {
        const std::uint64_t rank = message.agent == name_of(0) ? 0 : 1;
        std::vector<std::uint32_t> text = numbers(message.text());
        Part &part = parts_[text.front() * num_ranks + rank];
        if (!part.is_done) part.blocks.assign(text.begin() + 1, text.end());
    }

    void start_transfers() {
        for (auto &[key, part] : parts_)
            if (!part.blocks.empty() && !part.transfer && !part.is_done) start(key, part);
    }

    void start(std::uint64_t key, Part &part) try {
        const auto request = static_cast<std::uint32_t>(key / num_ranks);
        const std::uint64_t rank = key % num_ranks;
        const auto blocks = std::exchange(part.blocks, {});
        const kvmem::TransferOptions options = {.flags = kvmem::TransferFlag::report_release, .queue = &queue_,
            .destination_head = rank * heads_per_rank, .num_heads = heads_per_rank};
        part.transfer = kvmem::Transfer::start(*ranks_[rank], cache_, options,
            {.source_table = kvmem::BlockTable{.blocks = blocks}, .destination_table = kvmem::BlockTable{.blocks = tables_[request]},
                .num_tokens = num_tokens(request), .run_timeout = run_timeout, .user_data = key});
    } catch (const kvmem::Error &error) {
        std::printf("%s\n", error.what());
        ask(static_cast<std::uint32_t>(key / num_ranks), key % num_ranks);
    }

    void end(const kvmem::Completion &completion) {
        const auto request = static_cast<std::uint32_t>(completion.user_data / num_ranks);
        const std::uint64_t rank = completion.user_data % num_ranks;
        if (completion.status != kvmem::Status::ok) {
            std::printf("request %u of %s: %s\n", unsigned(request), name_of(rank).c_str(), kvmem::name(completion.status));
            return ask(request, rank);
        }
        parts_[completion.user_data].is_done = true;
        ++num_done_;
        tell(rank, "release", request);
    }

    void check() const {
        for (const auto &[request, table] : tables_)
            for (std::uint64_t token = 0; token < num_tokens(request); ++token)
                for (std::uint64_t layer = 0; layer < num_layers; ++layer)
                    for (std::uint64_t head = 0; head < num_heads; ++head)
                        if (*row(cache_, table, decode_page, token, layer, head) != expected(request, token, layer, head))
                            throw std::runtime_error("a row has not arrived");
        std::printf("all %u requests have all heads of both ranks\n", unsigned(num_requests));
    }

    kvmem::Queue queue_ = kvmem::Queue::create();
    kvmem::Directory directory_;
    kvmem::Agent agent_ = start_agent("decode");
    kvmem::Layout cache_ = build_cache(agent_, "BLONHC", decode_page, num_heads);
    std::array<std::optional<kvmem::Layout>, num_ranks> ranks_;
    std::map<std::uint32_t, std::vector<std::uint32_t>> tables_;
    std::map<std::uint64_t, Part> parts_; // by request and rank
    std::uint32_t num_done_ = 0;
};

// ---- processes: fork comes before the first call of kvmem, because neither NIXL nor kvmem's handles work in a forked child ----

/// Runs a rank, and again if it crashes, as an operator does. The first process of rank 1 crashes when it has computed a request.
int supervise(const std::string &folder, std::uint64_t rank) {
    for (int attempt = 0;; ++attempt) {
        const pid_t child = fork();
        if (child == 0) {
            const bool is_over = Prefill(folder, rank).run(rank == 1 && attempt == 0 ? std::optional(1u) : std::nullopt);
            _exit(is_over ? EXIT_SUCCESS : crashed);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child) return EXIT_FAILURE;
        if (WEXITSTATUS(status) != crashed) return WEXITSTATUS(status);
    }
}

int run_all(const std::string &folder) {
    std::vector<pid_t> children;
    alarm(90);
    for (std::uint64_t rank = 0; rank < num_ranks; ++rank) {
        children.push_back(fork());
        if (children.back() < 0) throw std::runtime_error("fork failed");
        if (children.back() == 0) std::exit(supervise(folder, rank));
    }
    Decode(folder).run();
    bool is_ok = true;
    for (const pid_t child : children) {
        int status = 0;
        is_ok &= waitpid(child, &status, 0) == child && status == 0;
    }
    return is_ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main() try {
    char folder[] = "/tmp/kvmem-engine-XXXXXX";
    if (!mkdtemp(folder)) throw std::runtime_error("mkdtemp failed");
    const int status = run_all(folder);
    rmdir(folder);
    return status;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
}
