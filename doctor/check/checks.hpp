// SPDX-License-Identifier: Apache-2.0
// The checks. Each runs in a process of its own and reports as it goes.
#pragma once

#include "../options.hpp"
#include "../run/reporter.hpp"

#include <string>
#include <vector>

namespace doctor {

// Properties of the machine that need neither CUDA nor NIXL.
void check_memory(Reporter &report);
void check_container(Reporter &report);
/// Finding ids are files.N, for the N-th directory.
void check_files(Reporter &report, const std::string &directory, std::size_t index);
void check_io_uring(Reporter &report);

/// The driver, and each GPU.
void check_cuda(Reporter &report, const Options &options);

/// The library and its plugins.
void check_nixl(Reporter &report, const Options &options);
/// One plugin, by creating its backend: for plugins that end the process that loads them.
void check_plugin(Reporter &report, const Options &options, const std::string &plugin);
/// Names of the files in the folder of plugins.
std::vector<std::string> plugin_files(const std::string &library);
void check_rdma_devices(Reporter &report);

/// GPUDirect Storage between a directory and a GPU.
void check_gds(Reporter &report, const Options &options, const std::string &directory, std::size_t index);

/// A directory, and its number in the options.
struct Directory {
    std::size_t index;
    std::string path;
};

// Transfers. `devices` is the number of GPUs.
void measure_host_paths(Reporter &report, const std::vector<Directory> &directories);
void measure_device_paths(Reporter &report, const std::vector<Directory> &directories, std::int32_t device);
void measure_peer_gpus(Reporter &report, std::int32_t devices);
/// With a process of its own on this machine, over NIXL.
void measure_peer_paths(Reporter &report, const Options &options, bool is_device, std::int32_t devices);

}  // namespace doctor
