// SPDX-License-Identifier: Apache-2.0
// Calls of queues and transfers.
#include "calls.hpp"

#include <cstring>

namespace {

Results completions(kvmem::span<const kvmem::Completion> taken) {
    std::string list;
    for (const auto &one : taken) {
        const std::string status = std::string(kvmem::name(one.status)).substr(std::strlen("KVMEM_STATUS_"));
        append(list, one.kind == kvmem::CompletionKind::layers_moved
                         ? number(one.user_data) + ":layers:" + number(one.num_layers)
                         : number(one.user_data) + ":" + number(one.bytes) + ":" + status);
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
        for (const std::uint64_t epoch : step.numbers("epochs")) epochs.push_back(epoch);
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
    kvmem::SubmitOptions options(const Step &step) const {
        kvmem::SubmitOptions options;
        options.pairs = pairs;
        options.flags = flags<kvmem::SubmitFlag>(step, "submit_flags", submit_flags);
        options.checksums = checksums;
        options.epochs = epochs;
        options.source_table = source_table;
        options.destination_table = destination_table;
        options.notification = notification;
        SET(options, num_tokens);
        SET(options, user_data);
        return options;
    }
    bool is_empty() const { return pairs.empty() && !source_table && !destination_table; }

    std::vector<kvmem::BlockPair> pairs;
    std::vector<std::uint32_t> checksums, source, destination;
    std::vector<std::uint64_t> epochs;
    std::optional<kvmem::BlockTable> source_table, destination_table;
    std::optional<std::string> notification;
};

// Adds the transfer that a call makes of two layouts and their options.
template <typename Create>
Results create_transfer(const Step &step, World &world, Create create) {
    const auto &name = new_name(step, world);
    kvmem::TransferOptions options;
    options.flags = flags<kvmem::TransferFlag>(step, "flags", transfer_flags);
    SET_SELECTION(options);
    options.parts = step.list("parts");
    options.method = static_cast<kvmem::Method>(step.word("method", methods));
    options.layers_per_completion = step.number("layers_per_completion");
    if (step.has("queue")) options.queue = &world.get<kvmem::Queue>(step.text("queue"));
    const auto &source = world.get<kvmem::Layout>(step.text("source"));
    const auto &destination = world.get<kvmem::Layout>(step.text("destination"));
    world.add(name, create(source, destination, options));
    return {};
}

Results transfer_create(const Step &step, World &world) {
    return create_transfer(step, world, kvmem::Transfer::create);
}

Results transfer_start(const Step &step, World &world) {
    const Blocks blocks(step);
    return create_transfer(step, world, [&](const auto &source, const auto &destination, const auto &options) {
        return kvmem::Transfer::start(source, destination, options, blocks.options(step));
    });
}

Results transfer_prepare(const Step &step, World &world) {
    const Blocks blocks(step);
    world.get<kvmem::Transfer>(step.name()).prepare(blocks.options(step));
    return {};
}

Results transfer_submit(const Step &step, World &world) {
    const Blocks blocks(step);
    auto &transfer = world.get<kvmem::Transfer>(step.name());
    if (blocks.is_empty()) transfer.submit();
    else transfer.submit(blocks.options(step));
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
            NUMBER(info, num_moves), NUMBER(info, num_requests), NUMBER(info, layers_moved),
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
        {"transfer_create", transfer_create},
        {"transfer_start", transfer_start},
        {"transfer_prepare", transfer_prepare},
        {"transfer_submit", transfer_submit},
        {"transfer_poll", transfer_poll},
        {"transfer_wait", transfer_wait},
        {"transfer_wait_layers", wait_layers},
        {"transfer_get_info", transfer_info},
        {"transfer_get_methods", [](const Step &step, World &world) -> Results {
             const auto used = world.get<kvmem::Transfer>(step.name()).methods().front();
             return {{"method", word_of(raw(used.method), methods)}, {"choice", word_of(raw(used.choice), choices)}};
         }},
    };
}
