// SPDX-License-Identifier: Apache-2.0
// Calls of shares and brokers.
#include "calls.hpp"

namespace {

kvmem::ShareOptions share_options(const Step &step) {
    kvmem::ShareOptions options;
    options.flags = flags<kvmem::ShareFlag>(step, "flags", share_flags);
    options.transport = static_cast<kvmem::Transport>(step.word("transport", transports));
    return options;
}

template <typename T>
Results create_share(const Step &step, World &world, const std::string &key) {
    const auto &name = new_name(step, world);
    world.add(name, kvmem::Share::create(world.get<T>(step.text(key)), share_options(step)));
    return {};
}

Results create_received(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    const auto &share = world.get<kvmem::Share>(step.text("share"));
    std::vector<std::byte> bytes(share.bytes().begin(), share.bytes().end());
    if (step.has("flip")) bytes.at(step.number("flip")) ^= std::byte{0xff};
    world.add(name, kvmem::Share::create_received(bytes, share.fds()));
    return {};
}

Results share_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Share>(step.name()).info();
    return {NUMBER(info, num_fds), NUMBER(info, memory_size),
            WORD(info, object, shared_objects),
            {"tier", info.tier ? word_of(raw(*info.tier), tiers) : "0"}, NUMBER(info, read_only),
            WORD(info, transport, transports)};
}

template <typename Open>
Results open_share(const Step &step, World &world, Open open) {
    const auto &name = new_name(step, world);
    kvmem::OpenOptions options;
    options.flags = flags<kvmem::OpenFlag>(step, "flags", open_flags);
    if (step.has("agent")) options.agent = &world.get<kvmem::Agent>(step.text("agent"));
    world.add(name, open(world.get<kvmem::Share>(step.text("share")), options));
    return {};
}

Results create_broker(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::BrokerOptions options;
    options.path = world.path(step.text("path"));
    world.add(name, kvmem::Broker::create(options));
    return {};
}

kvmem::PublishOptions publish_options(const Step &step) {
    kvmem::PublishOptions options;
    options.flags = flags<kvmem::PublishFlag>(step, "flags", publish_flags);
    SET(options, max_uses);
    return options;
}

Results publish(const Step &step, World &world) {
    const std::string &token = step.text("token");
    const auto &share = world.get<kvmem::Share>(step.text("share"));
    const auto options = publish_options(step);
    world.tokens[token] = world.get<kvmem::Broker>(step.name()).publish(step.text("name"), share, options);
    return {};
}

Results grant(const Step &step, World &world) {
    const std::string &token = step.text("token");
    const auto options = publish_options(step);
    world.tokens[token] = world.get<kvmem::Broker>(step.name()).grant(step.text("name"), options);
    return {};
}

Results broker_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Broker>(step.name()).info();
    return {NUMBER(info, publications), NUMBER(info, granted),
            NUMBER(info, refused)};
}

Results fetch(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::FetchOptions options;
    options.flags = flags<kvmem::FetchFlag>(step, "flags", fetch_flags);
    options.path = world.path(step.text("path"));
    options.name = step.text("name");
    options.token = world.tokens.at(step.text("token"));
    world.add(name, kvmem::fetch_share(options));
    return {};
}

}  // namespace

Calls share_calls() {
    return {
        {"share_create_region", [](const Step &step, World &world) {
             return create_share<kvmem::Region>(step, world, "region");
         }},
        {"share_create_layout", [](const Step &step, World &world) {
             return create_share<kvmem::Layout>(step, world, "layout");
         }},
        {"share_create_received", create_received},
        {"share_get_info", share_info},
        {"share_open_region", [](const Step &step, World &world) {
             return open_share(step, world, [](auto &share, auto &options) { return share.open_region(options); });
         }},
        {"share_open_layout", [](const Step &step, World &world) {
             return open_share(step, world, [](auto &share, auto &options) { return share.open_layout(options); });
         }},
        {"broker_create", create_broker},
        {"broker_publish", publish},
        {"broker_grant", grant},
        {"broker_unpublish", simply<kvmem::Broker>([](auto &broker, const Step &step) {
             broker.unpublish(step.text("name"));
         })},
        {"broker_get_info", broker_info},
        {"share_fetch", fetch},
    };
}
