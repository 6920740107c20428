// SPDX-License-Identifier: Apache-2.0
// An event loop with one queue: decode learns from it when prefill is published and withdrawn, which blocks prefill has
// computed, and which of them have arrived.
#include <kvmem.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr auto patience = 30s;
constexpr std::uint32_t num_blocks = 4;

// The user data of completions. That of a transfer is the id of its block.
constexpr std::uint64_t from_directory = 1ull << 32, from_messages = from_directory + 1;

kvmem::Agent start_agent(const char *name) {
    auto agent = kvmem::Agent::create(name);
    agent.create_backend("UCX");
    return agent;
}

kvmem::Layout build_cache(const kvmem::Agent &agent) {
    const kvmem::LayoutConfig config = {.num_blocks = num_blocks, .num_layers = 4, .outer_dim = 2, .page_size = 16,
        .inner_dim = 8 * 128, .dtype_width = 2, .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    return kvmem::Layout::build(config, kvmem::SystemOptions(), &agent);
}

class Decode {
public:
    explicit Decode(const std::string &folder) : directory_(kvmem::Directory::create({.folder = folder})) {
        directory_.report_events(&queue_, from_directory);
        agent_.report_notifications(&queue_, from_messages);
        directory_.watch("prefill", patience);
        directory_.publish(agent_, {}, patience); // prefill needs it to send messages
    }

    void run() {
        std::array<kvmem::Completion, 16> space;
        while (!is_withdrawn_ || num_arrived_ < num_blocks) {
            const auto completions = queue_.wait_for(space, patience);
            if (completions.empty()) throw std::runtime_error("decode has waited in vain");
            for (const auto &one : completions) handle(one);
        }
        std::printf("all %u blocks have arrived, and prefill was withdrawn\n", unsigned(num_blocks));
    }

private:
    void handle(const kvmem::Completion &completion) {
        switch (completion.user_data) {
        case from_directory:
            for (const auto &event : directory_.take_events(0s)) follow(event);
            break;
        case from_messages:
            for (const auto &message : agent_.take_notifications(0s)) {
                ready_.push_back(static_cast<std::uint32_t>(std::stoul(std::string(message.text()))));
            }
            break;
        default: arrive(static_cast<std::uint32_t>(completion.user_data));
        }
        start_transfers();
    }

    void follow(const kvmem::DirectoryEvent &event) {
        if (event.change == kvmem::DirectoryChange::withdrawn) is_withdrawn_ = true;
        if (event.change != kvmem::DirectoryChange::published) return;
        const auto entry = directory_.look_up("prefill", patience);
        entry.load(agent_);
        remote_ = entry.import_layout(agent_, "cache");
    }

    // A message can arrive before the event that prefill is published: its block waits for the layout.
    void start_transfers() {
        if (!remote_) return;
        for (const std::uint32_t block : ready_) {
            const kvmem::BlockPair pair = {block, block};
            transfers_[block] = kvmem::Transfer::start(remote_, cache_, {.queue = &queue_},
                {.pairs = {&pair, 1}, .user_data = block, .notification = "arrived", .timeout = patience});
        }
        ready_.clear();
    }

    void arrive(std::uint32_t block) {
        transfers_.at(block).wait(); // it has ended: this throws if it has failed
        transfers_.erase(block);
        ++num_arrived_;
        std::printf("block %u: %s\n", unsigned(block), reinterpret_cast<char *>(cache_.host_bytes(block, 0, 0).data()));
    }

    kvmem::Queue queue_ = kvmem::Queue::create();
    kvmem::Directory directory_;
    kvmem::Agent agent_ = start_agent("decode");
    kvmem::Layout cache_ = build_cache(agent_), remote_;
    std::vector<std::uint32_t> ready_;
    std::map<std::uint32_t, kvmem::Transfer> transfers_;
    std::uint32_t num_arrived_ = 0;
    bool is_withdrawn_ = false;
};

void prefill(const std::string &folder) {
    const auto directory = kvmem::Directory::create({.folder = folder});
    auto agent = start_agent("prefill");
    const auto cache = build_cache(agent);
    directory.publish(agent, {{"cache", &cache}}, patience);
    directory.wait_for("decode", patience).load(agent);
    for (std::uint32_t block = 0; block < num_blocks; ++block) {
        const std::string keys = "the keys of request " + std::to_string(block);
        std::memcpy(cache.host_bytes(block, 0, 0).data(), keys.c_str(), keys.size() + 1);
        agent.notify("decode", std::to_string(block));
    }
    // The blocks must exist until decode has them.
    for (std::size_t num_arrived = 0; num_arrived < num_blocks;) {
        const auto messages = agent.take_notifications(patience);
        if (messages.empty()) throw std::runtime_error("decode has not read all blocks");
        num_arrived += messages.size();
    }
} // the directory withdraws the agent

// fork comes before the first call of kvmem: neither NIXL nor kvmem's handles work in a forked child.
int run_both(const std::string &folder) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fork failed");
    alarm(60);
    if (child == 0) {
        prefill(folder);
        return EXIT_SUCCESS;
    }
    Decode(folder).run();
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main() try {
    char folder[] = "/tmp/kvmem-event-loop-XXXXXX";
    if (!mkdtemp(folder)) throw std::runtime_error("mkdtemp failed");
    const int status = run_both(folder);
    rmdir(folder);
    return status;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
}
