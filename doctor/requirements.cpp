// SPDX-License-Identifier: Apache-2.0
#include "requirements.hpp"

#include <algorithm>
#include <utility>

namespace doctor {

namespace {

struct Requirement {
    const char *name;
    /// Ids of findings, separated by blanks; "*" is any one part of an id.
    const char *findings;
    const char *meaning;
};

const Requirement requirements[] = {
    {"gpu", "cuda.driver gpu.*.device", "the CUDA driver, and every GPU it has"},
    {"vmm", "gpu.*.vmm", "every GPU has virtual memory management, for elastic memory"},
    {"posix-fd", "gpu.*.posix_fd", "every GPU shares memory by file descriptor"},
    {"fabric", "gpu.*.fabric", "every GPU shares memory by fabric handle"},
    {"rdma", "gpu.*.rdma nixl.rdma_devices", "network cards access the memory of every GPU"},
    {"peers", "gpu.*.peers", "every GPU accesses the memory of all others"},
    {"gds", "files.*.gds", "GPUDirect Storage in every directory"},
    {"nixl", "nixl.library nixl.agent nixl.peer", "NIXL loads, and moves bytes between two processes"},
    {"plugin:NAME", "", "a plugin of NIXL loads: plugin:UCX, plugin:POSIX, plugin:GDS_MT"},
    {"huge-pages", "memory.huge_pages", "reserved huge pages are free"},
    {"memlock", "memory.memlock", "no limit of locked memory"},
    {"io-uring", "files.io_uring", "io_uring"},
    {"direct-io", "files.*.direct_io", "O_DIRECT in every directory"},
    {"cma", "container.cma", "a process reads the memory of another one (process_vm_readv)"},
    {"shm", "container.shm", "/dev/shm is large enough"},
};

constexpr std::string_view plugin_prefix = "plugin:";
constexpr std::string_view groups[] = {"cuda.", "gpu.", "nixl.", "memory.", "files.", "container.", "paths."};

bool starts_with(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

const Requirement *find(std::string_view name) {
    const auto *const found = std::find_if(std::begin(requirements), std::end(requirements),
                                           [name](const Requirement &each) { return name == each.name; });
    return found == std::end(requirements) || *found->findings == '\0' ? nullptr : found;
}

std::string_view take_until(std::string_view &text, char separator) {
    const std::size_t end = std::min(text.find(separator), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return part;
}

bool matches(std::string_view id, std::string_view pattern) {
    while (!id.empty() && !pattern.empty()) {
        const auto part = take_until(id, '.'), wanted = take_until(pattern, '.');
        if (wanted != "*" && wanted != part) return false;
    }
    return id.empty() && pattern.empty();
}

// What the requirement needs, as patterns of ids.
std::vector<std::string> patterns_of(std::string_view name) {
    if (starts_with(name, plugin_prefix)) return {"nixl.plugin." + std::string(name.substr(plugin_prefix.size()))};
    const Requirement *const requirement = find(name);
    if (!requirement) return {std::string(name)};
    std::vector<std::string> patterns;
    for (std::string_view rest = requirement->findings; !rest.empty();) patterns.emplace_back(take_until(rest, ' '));
    return patterns;
}

void add(std::string &list, const std::string &text) { list += (list.empty() ? "" : "; ") + text; }

// Why the findings of one pattern do not meet it; empty if they do, or if there are none.
std::string reason_against(const std::string &pattern, const Report &report, bool &is_found) {
    std::string reason;
    is_found = false;
    const auto check = [&](const std::string &id, Level level, const std::string &title, const std::string &text) {
        if (!matches(id, pattern)) return;
        is_found = true;
        if (level != Level::ok) add(reason, title + " is " + name(level) + (text.empty() ? "" : ": " + text));
    };
    for (const Finding &each : report.findings) check(each.id, each.level, each.title, each.text);
    for (const Route &each : report.routes) check(each.id(), each.level, each.from + " to " + each.to, each.text);
    return reason;
}

// Why there is no finding of a pattern: the finding without which no other one of its group is made.
std::string reason_of_absence(const std::string &pattern, const Report &report) {
    std::string reason = "there is no finding " + pattern;
    for (const auto &[group, first] : {std::pair("gpu.", "cuda.driver"), std::pair("files.", "cuda.driver"),
                                       std::pair("nixl.", "nixl.library"), std::pair("files.", "nixl.library")}) {
        if (!starts_with(pattern, group)) continue;
        bool is_found = false;
        const std::string against = reason_against(first, report, is_found);
        if (!against.empty()) return reason + ", because the " + against;
    }
    return reason;
}

}  // namespace

bool is_requirement(std::string_view name) {
    if (starts_with(name, plugin_prefix)) return name.size() > plugin_prefix.size() && name != "plugin:NAME";
    const auto names_group = [name](std::string_view group) {
        return starts_with(name, group) && name.size() > group.size();
    };
    return find(name) || std::any_of(std::begin(groups), std::end(groups), names_group);
}

bool needs_transfers(std::string_view name) {
    const auto patterns = patterns_of(name);
    return std::any_of(patterns.begin(), patterns.end(), [](std::string_view each) {
        return each == "nixl.peer" || starts_with(each, "paths.") ||
               (starts_with(each, "gpu.") && each.size() > 6 && each.substr(each.size() - 6) == ".rates");
    });
}

std::string requirement_names() {
    std::string text;
    for (const Requirement &each : requirements) {
        std::string name = each.name;
        name.resize(std::max<std::size_t>(name.size(), 14), ' ');
        text += name + each.meaning + '\n';
    }
    text += "The id of any finding in the JSON output is a name too, such as gpu.0.vmm or files.0.direct_io.\n";
    return text;
}

std::vector<Verdict> judge(const std::vector<std::string> &required, const Report &report) {
    std::vector<Verdict> verdicts;
    for (const std::string &name : required) {
        std::string reason, absent;
        for (const std::string &pattern : patterns_of(name)) {
            bool is_found = false;
            const std::string against = reason_against(pattern, report, is_found);
            if (!against.empty()) add(reason, against);
            if (!is_found && absent.empty()) absent = reason_of_absence(pattern, report);
        }
        if (reason.empty()) reason = absent;
        verdicts.push_back({name, reason.empty(), reason});
    }
    return verdicts;
}

}  // namespace doctor
