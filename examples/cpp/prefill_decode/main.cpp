// SPDX-License-Identifier: Apache-2.0
// A prefill process and a decode process move a KV cache between them, and prove it byte by byte.
#include "cache.hpp"
#include "launch.hpp"
#include "pattern.hpp"
#include "roles.hpp"
#include "table.hpp"
#include "tier.hpp"

#include <cstdlib>
#include <exception>
#include <iostream>

namespace {

constexpr int exit_usage = 2;

const char *name_of(Role role) {
    return role == Role::prefill ? "prefill" : role == Role::decode ? "decode" : "prefill_decode";
}

// The name of the GPU that the tier needs, in brackets; "" if it needs none.
std::string name_gpu(const Options &options) {
    if (!find_tier(options.tier).needs_gpu) return {};
    const auto device = static_cast<std::int32_t>(options.device);
    const auto gpu = kvmem::device_info(device);
    return " (" + std::to_string(device) + ": " + gpu.name + ")";
}

// Refuses a bad geometry or a missing GPU before anything is started, in the library's words.
void introduce(const Options &options) {
    const auto config = geometry(options, kvmem::LayoutKind::fully_contiguous, options.blocks);
    const auto needs = kvmem::layout_requirements(config);
    require_nameable(options);
    const std::string gpu = name_gpu(options);
    std::cout << "kvmem " << kvmem::version() << ": " << options.blocks << " blocks of "
              << options.layers << " layers, keys and values, " << options.page_size << " tokens, "
              << options.heads << " heads x " << options.head_dim << ", bf16: "
              << format_bytes(needs.total_size) << " a side\n"
              << "prefill: fully contiguous; decode: layer separate; tier: " << options.tier << gpu
              << (options.share ? "; decode maps prefill's\n\n" : "\n\n")
              << std::flush;
}

int run_parent(int argc, char **argv, const Options &options) {
    introduce(options);
    if (!run_both(argc, argv, options)) return EXIT_FAILURE;
    std::cout << "\n" << count_blocks(options.pull)
              << " pulled, offloaded and restored; every byte is as prefill wrote it.\n";
    return EXIT_SUCCESS;
}

int run_child(const Options &options) {
    Channel peer(static_cast<int>(options.socket));
    const Deadline deadline{std::chrono::seconds(options.timeout)};
    try {
        (options.role == Role::prefill ? run_prefill : run_decode)(options, peer, deadline);
        return EXIT_SUCCESS;
    } catch (const std::exception &) {
        // The peer learns it now, rather than at its deadline; if it is gone already, so be it.
        try {
            peer.send(Message::failure, {}, Deadline(std::chrono::seconds(1)));
        } catch (const std::exception &) {
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
        std::cerr << "prefill_decode: " << error.what() << "\n";
        return exit_usage;
    } catch (const std::exception &error) {
        std::cerr << name_of(options.role) << ": " << error.what() << "\n";
        return EXIT_FAILURE;
    }
}
