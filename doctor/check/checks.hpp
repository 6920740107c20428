// SPDX-License-Identifier: Apache-2.0
// The checks. Each runs in a separate process and reports its findings one by one.
#pragma once

#include "../options.hpp"
#include "../run/reporter.hpp"

#include <kvmem.hpp>

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

/// An agent with a backend for GPUDirect Storage, which may not pass bytes through host memory. Throws
/// std::runtime_error with the reason if no plugin for it loads.
kvmem::Agent gds_agent(const Options &options);
/// GPUDirect Storage between a directory and a GPU.
void check_gds(Reporter &report, const Options &options, const std::string &directory, std::size_t index);

/// A directory, its number in the options, and what check_gds found.
struct Directory {
    std::size_t index;
    std::string path;
    /// Why GPUDirect Storage is not available; empty if it is.
    std::string against_gds;
};

// Transfers. `devices` is the number of GPUs.
void measure_host_paths(Reporter &report, const std::vector<Directory> &directories);
void measure_device_paths(Reporter &report, const Options &options, const std::vector<Directory> &directories,
                          std::int32_t device);
void measure_peer_gpus(Reporter &report, std::int32_t devices);
/// Transfers over NIXL with a child process on this machine.
void measure_peer_paths(Reporter &report, const Options &options, bool is_device, std::int32_t devices);

}  // namespace doctor
