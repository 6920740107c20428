// SPDX-License-Identifier: Apache-2.0
// Processes of prefill and decode move KV caches between them, and check every byte.
#include "cache.hpp"
#include "launch.hpp"
#include "pattern.hpp"
#include "ranks.hpp"
#include "roles.hpp"
#include "table.hpp"
#include "tier.hpp"
#include "tokens.hpp"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iostream>

namespace {

constexpr int exit_usage = 2;

// The name of the GPU that the tier needs, in brackets; "" if it needs none.
std::string name_gpu(const Options &options) {
    if (!find_tier(options.tier).needs_gpu) return {};
    const auto device = static_cast<std::int32_t>(options.device);
    const auto gpu = kvmem::device_info(device);
    return " (" + std::to_string(device) + ": " + gpu.name + ")";
}

// Throws the library's error for an invalid geometry or a missing GPU, before any process is started.
void introduce_one_to_one(const Options &options) {
    const auto config = geometry(options, KVMEM_ORDER_FULLY_CONTIGUOUS, options.blocks);
    const auto needs = kvmem::layout_requirements(config);
    require_nameable(options);
    const std::string gpu = name_gpu(options);
    std::cout << "kvmem " << kvmem::version() << ": " << options.blocks << " blocks of "
              << options.layers << " layers, keys and values, " << options.page_size << " tokens, "
              << options.heads << " heads x " << options.head_dim << ", bf16: "
              << format_bytes(needs.total_size) << " a side\n"
              << "prefill: fully contiguous; decode: layer separate; tier: " << options.tier << gpu
              << (options.share ? "; decode maps prefill's\n\n" : "\n\n");
}

void introduce_ranks(const Options &options) {
    const auto needs = kvmem::layout_requirements(geometry_of_rank(options, Role::prefill));
    kvmem::layout_requirements(geometry_of_rank(options, Role::decode));
    require_nameable_tokens(options);
    const std::string gpu = name_gpu(options);
    std::cout << "kvmem " << kvmem::version() << ": " << options.layers << " layers, keys and values, "
              << options.heads << " heads x " << options.head_dim << ", bf16; tier: " << options.tier << gpu
              << "\n"
              << describe_side(options, Role::prefill) << ", " << format_bytes(needs.total_size)
              << " a rank\n"
              << describe_side(options, Role::decode)
              << (options.share ? "; maps prefill's caches\n\n" : "\n\n");
}

void introduce(const Options &options) {
    (options.reshard ? introduce_ranks : introduce_one_to_one)(options);
    std::cout << table_head() << std::flush;
}

int run_parent(int argc, char **argv, const Options &options) {
    introduce(options);
    if (!run_all(argc, argv, options)) return EXIT_FAILURE;
    if (options.reshard) {
        const auto prompts = draw_prompts(options);
        std::cout << "\n" << count_prompts(prompts) << " of " << count_tokens(prompts)
                  << " tokens handed over; every token is as prefill wrote it.\n";
    } else {
        std::cout << "\n" << count_blocks(options.pull)
                  << " pulled, offloaded and restored; every byte is as prefill wrote it.\n";
    }
    return EXIT_SUCCESS;
}

int run_child(const Options &options) {
    std::deque<Channel> peers;
    for (const int socket : options.sockets) peers.emplace_back(socket);
    const Deadline deadline{std::chrono::seconds(options.timeout)};
    try {
        if (options.reshard) {
            (options.role == Role::prefill ? run_prefill_rank : run_decode_rank)(options, peers, deadline);
        } else {
            (options.role == Role::prefill ? run_prefill : run_decode)(options, peers.front(), deadline);
        }
        return EXIT_SUCCESS;
    } catch (const std::exception &) {
        // Notifies the peers, which would otherwise wait until their deadline. A peer that has ended is ignored.
        for (Channel &peer : peers) {
            try {
                peer.send(Message::failure, {}, Deadline(std::chrono::seconds(1)));
            } catch (const std::exception &) {
            }
        }
        throw;
    }
}

}  // namespace

int main(int argc, char **argv) {
    Options options;
    try {
        options = parse_options(argc, argv);
        if (options.help) {
            std::cout << help_text();
            return EXIT_SUCCESS;
        }
        return options.role == Role::parent ? run_parent(argc, argv, options) : run_child(options);
    } catch (const UsageError &error) {
        std::fprintf(stderr, "prefill_decode: %s\n", error.what());
        return exit_usage;
    } catch (const std::exception &error) {
        // One write, because the other process may write too.
        std::fprintf(stderr, "%s: %s\n", process_name(options).c_str(), error.what());
        return EXIT_FAILURE;
    }
}
