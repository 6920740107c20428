// SPDX-License-Identifier: Apache-2.0
// Transfers between the tiers of this process.
#include "checks.hpp"
#include "measure.hpp"

#include <algorithm>
#include <string>

namespace doctor {

namespace {

constexpr std::chrono::milliseconds usual_time(40), short_time(15);
// After the name of a second layout of a tier.
const char second[] = " again";

class Places {
public:
    Places(Reporter &report, std::uint32_t blocks) : report_(report), blocks_(blocks) {}

    // Registers the memory that is allocated from now on, for paths over NIXL.
    void use(kvmem::Agent agent) { agent_ = std::move(agent); }

    // Keeps the place, or the reason why there is none.
    template <typename Memory>
    void add(const std::string &name, const Memory &memory) {
        report_.step("allocate " + name);
        try {
            places_.push_back({name, kvmem::Layout::build(shape(blocks_), memory, agent_ ? &agent_ : nullptr)});
            commit(places_.back().layout);
        } catch (const kvmem::Error &error) {
            absent_.push_back({name, std::string(error.message())});
        }
    }

    // The reason against GPUDirect Storage replaces what kvmem says about layouts without an agent.
    void measure(const std::string &from, const std::string &to, std::chrono::milliseconds time = usual_time,
                 const std::string &against_gds = "") {
        report_.step("move blocks from " + from + " to " + to);
        for (const std::string &name : {from, to}) {
            if (const Absent *const absent = find(absent_, name)) {
                return report_.add(without_rate(from, to, Level::missing, absent->reason));
            }
        }
        Route route = doctor::measure(*find(places_, from), *find(places_, to), blocks_, time);
        route.to = route.to.substr(0, route.to.find(second));
        for (Route::Other &other : route.others) {
            if (other.method == "nixl" && !against_gds.empty()) other.reason = against_gds;
        }
        report_.add(route);
    }

    // Bytes that differ from page to page, so that a verification means something.
    void fill(const std::string &name) {
        if (const Place *const place = find(places_, name)) {
            const auto bytes = place->layout.region(0).host_bytes();
            for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i ^ i >> 8 ^ i >> 16);
        }
    }

private:
    struct Absent {
        std::string name;
        std::string reason;
    };

    static void commit(kvmem::Layout &layout) {
        const auto info = layout.info();
        if (info.tier == kvmem::Tier::elastic) layout.resize(info.num_blocks);
    }

    template <typename T>
    static const T *find(const std::vector<T> &list, const std::string &name) {
        for (const T &each : list) {
            if (each.name == name) return &each;
        }
        return nullptr;
    }

    Reporter &report_;
    const std::uint32_t blocks_;
    kvmem::Agent agent_;
    std::vector<Place> places_;
    std::vector<Absent> absent_;
};

std::string numbered(const char *tier, std::size_t number) { return tier + std::to_string(number); }

kvmem::DiskOptions file_in(const std::string &directory) {
    kvmem::DiskOptions memory;
    memory.directory = directory;
    return memory;
}

const char too_little[] = "less than 16 MiB of memory are available";

}  // namespace

void measure_host_paths(Reporter &report, const std::vector<Directory> &directories) {
    const std::uint32_t blocks = affordable_blocks();
    if (blocks == 0) return report.add(without_rate("system", "system", Level::skipped, too_little));
    Places places(report, blocks);
    places.add("system", kvmem::SystemOptions());
    places.add(std::string("system") + second, kvmem::SystemOptions());
    places.fill("system");
    places.measure("system", std::string("system") + second);
    for (const Directory &each : directories) {
        const std::string disk = numbered("disk", each.index);
        places.add(disk, file_in(each.path));
        places.measure("system", disk);
        places.measure(disk, "system");
    }
}

void measure_device_paths(Reporter &report, const Options &options, const std::vector<Directory> &directories,
                          std::int32_t device) {
    const auto number = static_cast<std::size_t>(device);
    const std::string pinned = numbered("pinned", number), gpu = numbered("device", number);
    const std::uint32_t blocks = affordable_blocks();
    if (blocks == 0) return report.add(without_rate(pinned, gpu, Level::skipped, too_little));
    Places places(report, blocks);
    kvmem::PinnedOptions locked;
    locked.device = device;
    kvmem::DeviceOptions memory;
    memory.device = device;
    places.add(pinned, locked);
    places.fill(pinned);
    const auto has_gds = [](const Directory &each) { return each.against_gds.empty(); };
    if (device == 0 && std::any_of(directories.begin(), directories.end(), has_gds)) places.use(gds_agent(options));
    places.add(gpu, memory);
    places.measure(pinned, gpu);
    places.measure(gpu, pinned);
    // All pairs for the first GPU; the others have the same paths.
    if (device > 0) return;

    places.add("system", kvmem::SystemOptions());
    places.fill("system");
    places.measure("system", gpu);
    places.measure(gpu, "system");
    places.measure("system", pinned);
    places.measure(pinned, "system");
    places.add(gpu + second, memory);
    places.measure(gpu, gpu + second);

    kvmem::ElasticOptions grows;
    grows.device = device;
    const std::string elastic = numbered("elastic", number);
    places.add(elastic, grows);
    for (const std::string &other : {std::string("system"), pinned, gpu}) {
        places.measure(other, elastic);
        places.measure(elastic, other);
    }
    for (const Directory &each : directories) {
        const std::string disk = numbered("disk", each.index);
        places.add(disk, file_in(each.path));
        for (const std::string &other : {pinned, gpu, elastic}) {
            const std::string against = other == pinned ? "" : each.against_gds;
            places.measure(other, disk, usual_time, against);
            places.measure(disk, other, usual_time, against);
        }
    }
}

void measure_peer_gpus(Reporter &report, std::int32_t devices) {
    const std::uint32_t blocks = affordable_blocks();
    Places places(report, std::max(blocks, 1U));
    for (std::int32_t each = 0; each < devices; ++each) {
        kvmem::DeviceOptions memory;
        memory.device = each;
        places.add(numbered("device", static_cast<std::size_t>(each)), memory);
    }
    for (std::int32_t from = 0; from < devices; ++from) {
        for (std::int32_t to = 0; to < devices; ++to) {
            if (from == to) continue;
            places.measure(numbered("device", static_cast<std::size_t>(from)),
                           numbered("device", static_cast<std::size_t>(to)), short_time);
        }
    }
}

}  // namespace doctor
