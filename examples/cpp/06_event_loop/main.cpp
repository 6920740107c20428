// SPDX-License-Identifier: Apache-2.0
// An event loop with one queue: decode learns from it when prefill is published and withdrawn, which blocks prefill has
// computed, which of their layers have arrived, and when the blocks of a run can be used for others.
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
constexpr std::uint64_t model_layers = 4;

kvmem::Agent start_agent(const char *name) {
    auto agent = kvmem::Agent::create(name);
    agent.create_backend("UCX");
    return agent;
}

kvmem::Layout build_cache(const kvmem::Agent &agent) {
    const kvmem::LayoutConfig config = {.num_blocks = num_blocks, .num_layers = model_layers, .outer_dim = 2, .page_size = 16,
        .inner_dim = 8 * 128, .dtype_width = 2, .order = KVMEM_ORDER_FULLY_CONTIGUOUS};
    return kvmem::Layout::build(config, kvmem::SystemOptions(), &agent);
}

std::string keys_of(std::uint32_t request) { return "the keys of request " + std::to_string(request); }

char *keys(const kvmem::Layout &cache, std::uint32_t block, std::uint64_t layer) {
    return reinterpret_cast<char *>(cache.host_bytes(block, layer, 0).data());
}

class Decode {
public:
    explicit Decode(const std::string &folder) : directory_(kvmem::Directory::create({.folder = folder})) {
        directory_.report_events(&queue_);
        agent_.report_notifications(&queue_);
        directory_.watch("prefill", patience);
        directory_.publish(agent_, {}, patience); // prefill needs it to send messages
    }

    void run() {
        std::array<kvmem::Completion, 16> space;
        while (!is_withdrawn_ || num_released_ < num_blocks) {
            const auto completions = queue_.wait_for(space, patience);
            if (completions.empty()) throw std::runtime_error("decode has waited in vain");
            for (const auto &one : completions) handle(one);
        }
        std::printf("all %u blocks have arrived, and prefill was withdrawn\n", unsigned(num_arrived_));
    }

private:
    void handle(const kvmem::Completion &completion) {
        const auto block = static_cast<std::uint32_t>(completion.user_data); // of a run
        switch (completion.kind) {
        case kvmem::CompletionKind::events:
            for (const auto &event : directory_.take_events(0s)) follow(event);
            break;
        case kvmem::CompletionKind::notifications:
            for (const auto &message : agent_.take_notifications(0s)) {
                ready_.push_back(static_cast<std::uint32_t>(std::stoul(std::string(message.text()))));
            }
            break;
        case kvmem::CompletionKind::layers_moved: attend(block, completion.num_layers); break;
        case kvmem::CompletionKind::run_ended: end(block, completion.status); break;
        default: break;
        }
        // The end of a run says it, or a completion of its own after that: a run that has timed out may still write.
        if (completion.released) {
            transfers_.erase(block);
            ++num_released_;
        }
        start_transfers();
    }

    void follow(const kvmem::DirectoryEvent &event) {
        if (event.change == kvmem::DirectoryChange::withdrawn) is_withdrawn_ = true;
        if (event.change != kvmem::DirectoryChange::published) return;
        const auto entry = directory_.look_up("prefill", patience);
        entry.load(agent_);
        kvmem::OpenOptions options;
        options.flags = kvmem::OpenFlag::remote;
        options.agent = &agent_;
        remote_ = entry.open_layout("cache", options, patience);
    }

    // A message can arrive before the event that prefill is published: its block waits for the layout.
    void start_transfers() {
        if (!remote_) return;
        for (const std::uint32_t block : ready_) {
            const kvmem::BlockPair pair = {block, block};
            const kvmem::TransferOptions options = {
                .flags = kvmem::TransferFlag::by_layer | kvmem::TransferFlag::report_release,
                .queue = &queue_, .layers_per_completion = 1};
            transfers_[block] = kvmem::Transfer::start(remote_, cache_, options,
                {.pairs = {&pair, 1}, .run_timeout = patience, .user_data = block, .notification = "arrived"});
        }
        ready_.clear();
    }

    // Stands for attention over the layers that have arrived, while the others are in flight.
    void attend(std::uint32_t block, std::uint64_t num_layers) {
        for (std::uint64_t &layer = next_layers_[block]; layer < num_layers; ++layer) {
            if (keys(cache_, block, layer) != keys_of(block)) throw std::runtime_error("a layer has not arrived");
        }
        if (num_layers == model_layers) std::printf("block %u: %s\n", unsigned(block), keys(cache_, block, 0));
    }

    void end(std::uint32_t block, kvmem::Status status) {
        if (status == kvmem::Status::ok) {
            ++num_arrived_;
        } else {
            std::printf("block %u has not arrived: %s\n", unsigned(block), kvmem::name(status));
        }
    }

    kvmem::Queue queue_ = kvmem::Queue::create();
    kvmem::Directory directory_;
    kvmem::Agent agent_ = start_agent("decode");
    kvmem::Layout cache_ = build_cache(agent_), remote_;
    std::vector<std::uint32_t> ready_;
    std::map<std::uint32_t, kvmem::Transfer> transfers_;
    std::map<std::uint32_t, std::uint64_t> next_layers_;
    std::uint32_t num_arrived_ = 0, num_released_ = 0;
    bool is_withdrawn_ = false;
};

void prefill(const std::string &folder) {
    const auto directory = kvmem::Directory::create({.folder = folder});
    auto agent = start_agent("prefill");
    const auto cache = build_cache(agent);
    directory.publish(agent, {{"cache", &cache}}, patience);
    directory.wait_for("decode", patience).load(agent);
    for (std::uint32_t block = 0; block < num_blocks; ++block) {
        for (std::uint64_t layer = 0; layer < model_layers; ++layer) {
            std::strcpy(keys(cache, block, layer), keys_of(block).c_str());
        }
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
