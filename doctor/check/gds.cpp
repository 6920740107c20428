// SPDX-License-Identifier: Apache-2.0
// GPUDirect Storage: NIXL's plugins GDS and GDS_MT between a directory and a GPU.
#include "../machine/files.hpp"
#include "checks.hpp"
#include "measure.hpp"

#include <cstdlib>
#include <stdexcept>

namespace doctor {

namespace {

constexpr std::uint32_t blocks = 4;
const char compatibility[] = "CUFILE_ALLOW_COMPAT_MODE";

struct Failure {
    std::string reason;
    std::string fix;
};

// Paths without host memory only, so that cuFile cannot pass the bytes through it unnoticed.
void move(const kvmem::Layout &from, const kvmem::Layout &to) {
    std::vector<kvmem::BlockPair> pairs;
    for (std::uint32_t i = 0; i < blocks; ++i) pairs.push_back({i, i});
    kvmem::TransferOptions options;
    options.flags = kvmem::TransferFlag::no_host_bounce;
    kvmem::SubmitOptions all;
    all.pairs = pairs;
    kvmem::Transfer::start(from, to, options, all).wait();
}

void try_out(const Options &options, const std::string &directory) {
    const auto agent = gds_agent(options);
    kvmem::DiskOptions file;
    file.directory = directory;
    try {
        const auto disk = kvmem::Layout::build(shape(blocks), file, &agent);
        const auto device = kvmem::Layout::build(shape(blocks), kvmem::DeviceOptions(), &agent);
        move(device, disk);
        move(disk, device);
    } catch (const kvmem::Error &error) {
        const bool has_module = exists("/proc/driver/nvidia-fs");
        throw Failure{std::string(error.message()),
                      has_module ? "use a file system with GPUDirect Storage: ext4 or XFS on local NVMe, Lustre"
                                 : "as root: modprobe nvidia_fs, a kernel module of the package nvidia-gds"};
    }
}

}  // namespace

kvmem::Agent gds_agent(const Options &options) {
    // Without this setting cuFile passes bytes through host memory if it cannot do better, and does not report it.
    setenv(compatibility, "false", 1);
    // Otherwise it writes a file in the current directory.
    setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
    if (options.nixl) kvmem::load_nixl(*options.nixl);
    auto agent = kvmem::Agent::create("kvmem-doctor");
    std::string reasons;
    // The first plugin that loads: both have the same purpose, and exclude each other.
    for (const char *const plugin : {"GDS_MT", "GDS"}) {
        try {
            agent.create_backend(plugin);
            return agent;
        } catch (const kvmem::Error &error) {
            reasons += (reasons.empty() ? "" : "; ") + std::string(error.message());
        }
    }
    throw std::runtime_error(reasons);
}

void check_gds(Reporter &report, const Options &options, const std::string &directory, std::size_t index) {
    report.step("move blocks between a GPU and a file in " + directory + " by GPUDirect Storage");
    const bool is_set = std::getenv(compatibility) != nullptr;
    Finding found{"files." + std::to_string(index) + ".gds", "GPUDirect Storage in " + directory, Level::ok, "", "",
                  {{"directory", directory}, {"nvidia_fs", exists("/proc/driver/nvidia-fs")}}};
    try {
        try_out(options, directory);
        found.text = "moves bytes between a GPU and a file without host memory";
        if (!is_set) found.text += ", with CUFILE_ALLOW_COMPAT_MODE=false in the environment";
    } catch (const Failure &failure) {
        found.level = Level::missing;
        found.text = failure.reason;
        found.fix = failure.fix;
    } catch (const std::runtime_error &error) {
        found.level = Level::missing;
        found.text = error.what();
        found.fix = "install the libraries that the findings of the plugins GDS and GDS_MT name";
    }
    report.add(found);
}

}  // namespace doctor
