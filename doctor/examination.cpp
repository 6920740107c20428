// SPDX-License-Identifier: Apache-2.0
#include "examination.hpp"

#include "check/checks.hpp"
#include "run/child.hpp"

#include <algorithm>

namespace doctor {

namespace {

constexpr std::string_view groups[] = {"cuda", "gpu", "nixl", "memory", "files", "container", "paths"};

class Examination {
public:
    explicit Examination(const Options &options) : options_(options) {}

    // Findings of one group follow each other, in the order of their checks.
    Report take() && {
        const auto rank = [](const Finding &finding) {
            const std::string group = finding.id.substr(0, finding.id.find('.'));
            return std::find(std::begin(groups), std::end(groups), group) - std::begin(groups);
        };
        std::stable_sort(report_.findings.begin(), report_.findings.end(),
                         [&](const Finding &a, const Finding &b) { return rank(a) < rank(b); });
        return std::move(report_);
    }

    // Runs a check. If it does not end well, a finding with this id and title says so; with ".check" after the id if
    // the check had reported that one before.
    Outcome check(const std::string &id, const std::string &title, const Work &work, const std::string &fix = "") {
        Outcome outcome = run_in_child(work, options_.limit);
        for (const Finding &each : outcome.findings) report_.findings.push_back(each);
        for (const Route &each : outcome.routes) report_.routes.push_back(each);
        if (!outcome.is_complete) {
            const std::string unused = find(id) ? id + ".check" : id;
            report_.findings.push_back({unused, title, Level::failed, outcome.failure, fix, {}});
        }
        return outcome;
    }

    bool has(const std::string &id, Level level) const {
        const Finding *const found = find(id);
        return found && found->level == level;
    }
    std::string text_of(const std::string &id) const {
        const Finding *const found = find(id);
        return found ? found->text : "";
    }
    // Why a check did not succeed; empty if it did.
    std::string reason_against(const std::string &id) const {
        const Finding *const found = find(id);
        if (!found) return "GPUDirect Storage was not checked, because NIXL or O_DIRECT is missing";
        return found->level == Level::ok ? "" : found->text;
    }
    std::int64_t number_of(const std::string &id, const std::string &name) const {
        const Finding *const found = find(id);
        for (const Member &member : found ? found->data : Value::Object()) {
            const auto *const number = member.value.as<std::int64_t>();
            if (number && member.name == name) return *number;
        }
        return 0;
    }

private:
    const Finding *find(const std::string &id) const {
        for (const Finding &each : report_.findings) {
            if (each.id == id) return &each;
        }
        return nullptr;
    }

    const Options &options_;
    Report report_;
};

const char nvidia_smi[] = "nvidia-smi shows the state of the driver; the log of the kernel has its errors";

std::int32_t cuda(Examination &examination, const Options &options) {
    examination.check("cuda.driver", "driver", [&](Reporter &report) { check_cuda(report, options); },
                      nvidia_smi);
    return static_cast<std::int32_t>(examination.number_of("cuda.driver", "gpus"));
}

bool nixl(Examination &examination, const Options &options) {
    const auto outcome = examination.check("nixl.library", "library and plugins",
                                           [&](Reporter &report) { check_nixl(report, options); },
                                           "see the plugins that failed; without one, install NIXL again");
    const bool is_loaded = examination.has("nixl.library", Level::ok);
    if (is_loaded && !outcome.is_complete) {
        // A plugin ended the process that loads all. Loading each in a separate process shows which one.
        for (const std::string &plugin : plugin_files(examination.text_of("nixl.library"))) {
            examination.check("nixl.plugin." + plugin, "plugin " + plugin,
                              [&](Reporter &report) { check_plugin(report, options, plugin); },
                              "move it out of the folder of plugins if it is not needed, or install NIXL again");
        }
    }
    examination.check("nixl.rdma_devices", "RDMA network cards", check_rdma_devices);
    return is_loaded && !examination.has("nixl.agent", Level::failed);
}

void files(Examination &examination, const Options &options, bool has_nixl, std::int32_t devices) {
    examination.check("files.io_uring", "io_uring", check_io_uring);
    for (std::size_t i = 0; i < options.directories.size(); ++i) {
        const std::string &directory = options.directories[i];
        const std::string id = "files." + std::to_string(i);
        examination.check(id + ".writable", "files in " + directory,
                          [&](Reporter &report) { check_files(report, directory, i); },
                          "the file system does not respond: check its server or device, or choose another one");
        if (!has_nixl || devices == 0 || !examination.has(id + ".direct_io", Level::ok)) continue;
        examination.check(id + ".gds", "GPUDirect Storage in " + directory,
                          [&](Reporter &report) { check_gds(report, options, directory, i); },
                          "run with CUFILE_LOGFILE_PATH=/tmp/cufile.log, which then has what cuFile does");
    }
}

// Only those in which a file could be created.
std::vector<Directory> usable_directories(const Options &options, const Examination &examination) {
    std::vector<Directory> usable;
    for (std::size_t i = 0; i < options.directories.size(); ++i) {
        if (examination.has("files." + std::to_string(i) + ".writable", Level::ok)) {
            const auto against_gds = examination.reason_against("files." + std::to_string(i) + ".gds");
            usable.push_back({i, options.directories[i], against_gds});
        }
    }
    return usable;
}

void paths(Examination &examination, const Options &options, bool has_nixl, std::int32_t devices) {
    const auto directories = usable_directories(options, examination);
    const char fix[] = "run again with a longer --timeout; if it repeats, the log of the kernel may have the reason";
    examination.check("paths.host", "paths of host memory and files",
                      [&](Reporter &report) { measure_host_paths(report, directories); }, fix);
    for (std::int32_t device = 0; device < devices; ++device) {
        const std::string number = std::to_string(device);
        examination.check("paths.device" + number, "paths of GPU " + number,
                          [&](Reporter &report) { measure_device_paths(report, options, directories, device); }, fix);
    }
    if (devices > 1) {
        examination.check("paths.devices", "paths between GPUs",
                          [&](Reporter &report) { measure_peer_gpus(report, devices); }, fix);
    }
    if (!has_nixl) return;
    examination.check("nixl.peer", "transfers to another process",
                      [&](Reporter &report) { measure_peer_paths(report, options, false, devices); }, fix);
    if (devices > 0) {
        examination.check("paths.peer_device", "paths to GPU memory of another process",
                          [&](Reporter &report) { measure_peer_paths(report, options, true, devices); }, fix);
    }
}

}  // namespace

Report examine(const Options &options) {
    Examination examination(options);
    const std::int32_t devices = cuda(examination, options);
    const bool has_nixl = nixl(examination, options);
    examination.check("memory.available", "memory", check_memory);
    files(examination, options, has_nixl, devices);
    examination.check("container.kind", "container", check_container);
    if (options.measures) paths(examination, options, has_nixl, devices);
    return std::move(examination).take();
}

}  // namespace doctor
