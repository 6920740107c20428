// SPDX-License-Identifier: Apache-2.0
// Calls of agents and registrations, and of layouts that peers access.
#include "calls.hpp"

namespace {

void store(World &world, const std::string &name, const kvmem::Blob &blob) {
    world.bytes[name] = std::vector<std::byte>(blob.bytes().begin(), blob.bytes().end());
}

// Bytes that an earlier step has stored; `flip` inverts one of them.
std::vector<std::byte> stored(const Step &step, const World &world, const std::string &key) {
    const auto found = world.bytes.find(step.text(key));
    if (found == world.bytes.end()) throw Failure("no bytes are stored as " + step.text(key));
    auto bytes = found->second;
    if (step.has("flip")) bytes.at(step.number("flip")) ^= std::byte{0xff};
    return bytes;
}

Results agent_create(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    kvmem::AgentOptions options;
    options.flags = flags<kvmem::AgentFlag>(step, "flags", agent_flags);
    world.add(name, kvmem::Agent::create(step.text("name"), options));
    return {};
}

Results get_backends(const Step &step, World &world) {
    const auto backends = world.get<kvmem::Agent>(step.name()).backends();
    std::string names;
    for (std::size_t i = 0; i < backends.size(); ++i) append(names, backends.at(i).name);
    return {{"names", names}};
}

// ---- Registrations ----

Results register_region(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    auto &agent = world.get<kvmem::Agent>(step.text("agent"));
    world.add(name, agent.register_region(world.get<kvmem::Region>(step.text("region"))));
    return {};
}

Results registration_info(const Step &step, World &world) {
    const auto info = world.get<kvmem::Registration>(step.name()).info();
    return {NUMBER(info, size), WORD(info, memory_type, memory_types), NUMBER(info, registered)};
}

// ---- Metadata and descriptors ----

Results local_metadata(const Step &step, World &world) {
    const std::string &name = step.text("metadata");
    store(world, name, world.get<kvmem::Agent>(step.name()).local_metadata());
    return {};
}

Results load_metadata(const Step &step, World &world) {
    const auto metadata = stored(step, world, "metadata");
    return {{"peer", world.get<kvmem::Agent>(step.name()).load_remote_metadata(metadata)}};
}

Results check_metadata(const Step &step, World &world) {
    // In C++ this is a value instead of a status.
    if (!world.get<kvmem::Agent>(step.name()).has_remote_metadata(step.text("peer"))) {
        throw kvmem::Error(kvmem::Status::not_found, step.text("peer"));
    }
    return {};
}

Results invalidate_all(const Step &step, World &world) {
    return {{"count", number(world.get<kvmem::Agent>(step.name()).invalidate_all_remote_metadata())}};
}

Results layout_export(const Step &step, World &world) {
    const std::string &name = step.text("descriptor");
    store(world, name, world.get<kvmem::Layout>(step.name()).export_descriptor());
    return {};
}

Results layout_import(const Step &step, World &world) {
    const auto &name = new_name(step, world);
    const auto descriptor = stored(step, world, "descriptor");
    world.add(name, kvmem::Layout::import_descriptor(world.get<kvmem::Agent>(step.text("agent")), descriptor));
    return {};
}

// ---- Notifications ----

Results take_notifications(const Step &step, World &world) {
    const auto taken = world.get<kvmem::Agent>(step.name()).take_notifications(timeout(step));
    if (taken.empty()) timed_out();
    std::string list;
    for (std::size_t i = 0; i < taken.size(); ++i) {
        const auto one = taken.at(i);
        append(list, std::string(one.agent) + ":" + std::string(one.text()));
    }
    return {{"notifications", list}};
}

}  // namespace

Calls agent_calls() {
    return {
        {"agent_create", agent_create},
        {"agent_name", [](const Step &step, World &world) -> Results {
             return {{"name", std::string(world.get<kvmem::Agent>(step.name()).name())}};
         }},
        {"agent_create_backend", simply<kvmem::Agent>([](auto &agent, const Step &step) {
             agent.create_backend(step.text("plugin"));
         })},
        {"agent_get_backends", get_backends},
        {"agent_get_local_metadata", local_metadata},
        {"agent_load_remote_metadata", load_metadata},
        {"agent_check_remote_metadata", check_metadata},
        {"agent_invalidate_remote_metadata", simply<kvmem::Agent>([](auto &agent, const Step &step) {
             agent.invalidate_remote_metadata(step.text("peer"));
         })},
        {"agent_invalidate_all_remote_metadata", invalidate_all},
        {"agent_notify", simply<kvmem::Agent>([](auto &agent, const Step &step) {
             agent.notify(step.text("peer"), step.text("message"));
         })},
        {"agent_take_notifications", take_notifications},
        {"region_register", register_region},
        {"region_get_agent", [](const Step &step, World &world) -> Results {
             return {{"agent", world.get<kvmem::Region>(step.name()).agent(step.number("index"))}};
         }},
        {"registration_get_info", registration_info},
        {"layout_export", layout_export},
        {"layout_import", layout_import},
    };
}
