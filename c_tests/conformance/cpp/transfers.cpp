// SPDX-License-Identifier: Apache-2.0
// Calls of queues and transfers.
#include "calls.hpp"

#include <cstring>

namespace {

Results completions(kvmem::span<const kvmem::Completion> taken) {
    std::string list;
    for (const auto &one : taken) {
        const std::string status = std::string(kvmem::name(one.status)).substr(std::strlen("KVMEM_STATUS_"));
        append(list, number(one.user_data) + ":" + number(one.bytes) + ":" + status);
    }
    return {{"completions", list}};
}

Results queue_poll(const Step &step, World &world) {
    std::vector<kvmem::Completion> space(step.number("capacity"));
    return completions(world.get<kvmem::Queue>(step.name()).poll(space));
}

Results queue_wait(const Step &step, World &world) {
    std::vector<kvmem::Completion> space(step.number("capacity"));
    const auto taken = world.get<kvmem::Queue>(step.name()).wait_for(space, timeout(step));
    if (taken.empty()) timed_out();
    return completions(taken);
}

// ---- Transfers ----

// The blocks of a step, and what the options refer to.
struct Blocks {
    explicit Blocks(const Step &step) {
        for (const std::string &pair : step.list("pairs")) {
            const auto [from, to] = split_pair(pair);
            pairs.push_back({static_cast<std::uint32_t>(parse_number(from)),
                             static_cast<std::uint32_t>(parse_number(to))});
        }
        checksums = ids(step, "checksums");
        source = ids(step, "source_blocks");
        destination = ids(step, "destination_blocks");
        if (step.has("source_blocks")) {
            source_table = {source, step.number("source_first"), step.number("source_step")};
        }
        if (step.has("destination_blocks")) {
            destination_table = {destination, step.number("destination_first"), step.number("destination_step")};
        }
        if (step.has("notification")) notification = step.text("notification");
    }
    template <typename Options>
    void set(Options &options, const Step &step) const {
        options.pairs = pairs;
        options.checksums = checksums;
        options.source_table = source_table;
        options.destination_table = destination_table;
        options.notification = notification;
        SET(options, num_tokens);
        SET(options, user_data);
    }

    std::vector<kvmem::BlockPair> pairs;
    std::vector<std::uint32_t> checksums, source, destination;
    std::optional<kvmem::BlockTable> source_table, destination_table;
    std::optional<std::string> notification;
};

template <typename Create>
Results create_transfer(const Step &step, World &world, Create create) {
    const auto &name = new_name(step, world);
    const Blocks blocks(step);
    kvmem::TransferOptions options;
    blocks.set(options, step);
    options.flags = flags<kvmem::TransferFlag>(step, "flags", transfer_flags);
    SET_SELECTION(options);
    options.parts = step.list("parts");
    options.method = static_cast<kvmem::Method>(step.word("method", methods));
    if (step.has("queue")) options.queue = &world.get<kvmem::Queue>(step.text("queue"));
    const auto &source = world.get<kvmem::Layout>(step.text("source"));
    const auto &destination = world.get<kvmem::Layout>(step.text("destination"));
    world.add(name, create(source, destination, options));
    return {};
}

Results submit_pairs(const Step &step, World &world) {
    const Blocks blocks(step);
    kvmem::SubmitOptions options;
    blocks.set(options, step);
    world.get<kvmem::Transfer>(step.name()).submit_pairs(options);
    return {};
}

Results transfer_poll(const Step &step, World &world) {
    if (!world.get<kvmem::Transfer>(step.name()).poll()) throw Failure("the run is in flight");
    return {};
}

Results transfer_wait(const Step &step, World &world) {
    if (!world.get<kvmem::Transfer>(step.name()).wait_for(timeout(step))) timed_out();
    return {};
}

Results wait_layers(const Step &step, World &world) {
    const auto &transfer = world.get<kvmem::Transfer>(step.name());
    if (!transfer.wait_layers_for(step.number("num_layers"), timeout(step))) timed_out();
    return {};
}

Results transfer_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Transfer>(step.name()).info();
    return {NUMBER(info, bytes), NUMBER(info, num_pieces),
            NUMBER(info, num_moves), NUMBER(info, num_requests),
            WORD(info, method, methods)};
}

}  // namespace

Calls transfer_calls() {
    return {
        {"queue_create", [](const Step &step, World &world) -> Results {
             world.add(new_name(step, world), kvmem::Queue::create());
             return {};
         }},
        {"queue_poll", queue_poll},
        {"queue_wait", queue_wait},
        {"transfer_create", [](const Step &step, World &world) {
             return create_transfer(step, world, kvmem::Transfer::create);
         }},
        {"transfer_start", [](const Step &step, World &world) {
             return create_transfer(step, world, kvmem::Transfer::start);
         }},
        {"transfer_submit_pairs", submit_pairs},
        {"transfer_poll", transfer_poll},
        {"transfer_wait", transfer_wait},
        {"transfer_wait_layers", wait_layers},
        {"transfer_get_layers", [](const Step &step, World &world) -> Results {
             return {{"num_layers", number(world.get<kvmem::Transfer>(step.name()).layers())}};
         }},
        {"transfer_get_info", transfer_info},
        {"transfer_explain", [](const Step &step, World &world) -> Results {
             return {{"method", word_of(raw(world.get<kvmem::Transfer>(step.name()).explain().method), methods)}};
         }},
    };
}
