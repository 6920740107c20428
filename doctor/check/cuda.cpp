// SPDX-License-Identifier: Apache-2.0
// The CUDA driver and what each GPU can do.
#include "../machine/files.hpp"
#include "../report/text.hpp"
#include "checks.hpp"

#include <kvmem.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace doctor {

namespace {

using kvmem::DeviceCapability;

// The name of a MIG instance says so, as in "NVIDIA H100 MIG 1g.10gb".
std::string uuid_text(const kvmem::Uuid &uuid, const std::string_view name) {
    std::string text = name.find(" MIG ") == std::string_view::npos ? "GPU-" : "MIG-";
    for (std::size_t i = 0; i < uuid.size(); ++i) {
        char byte[3];
        std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned>(uuid[i]));
        text += (i == 4 || i == 6 || i == 8 || i == 10) ? "-" : "";
        text += byte;
    }
    return text;
}

// ---- The driver ----

std::string fix_of_driver() {
    const char *const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const bool has_module = exists("/proc/driver/nvidia/version");
    const bool has_nodes = exists("/dev/nvidiactl");
    if (has_nodes && visible) {
        return std::string("unset CUDA_VISIBLE_DEVICES, which is \"") + visible + "\", or correct it";
    }
    if (has_nodes) return "add the directory of libcuda.so.1 to LD_LIBRARY_PATH; in a container: docker run --gpus all";
    if (has_module) return "give the container the GPUs: docker run --gpus all, with the NVIDIA Container Toolkit";
    return "install the NVIDIA driver, if this machine has a GPU; in a container, on its host";
}

// Returns the number of GPUs.
std::int32_t check_driver(Reporter &report) {
    report.step("initialise the CUDA driver");
    Finding finding{"cuda.driver", "driver", Level::ok, "", "", {}};
    std::int32_t count = 0;
    try {
        const auto info = kvmem::cuda_info();
        count = info.device_count;
        finding.text = "CUDA " + std::to_string(info.driver_version / 1000) + "." +
                       std::to_string(info.driver_version % 1000 / 10) + ", " + std::to_string(count) +
                       (count == 1 ? " GPU" : " GPUs");
        finding.data = {{"cuda_version", info.driver_version}, {"gpus", count}};
    } catch (const kvmem::Error &error) {
        finding.level = error.status() == kvmem::Status::unavailable_cuda ? Level::missing : Level::failed;
        finding.text = error.message();
        finding.fix = fix_of_driver();
        finding.data = {{"gpus", 0}};
    }
    report.add(finding);
    return count;
}

// ---- One GPU ----

class Gpu {
public:
    Gpu(Reporter &report, std::int32_t ordinal, std::int32_t count)
        : report_(report), ordinal_(ordinal), count_(count), id_("gpu." + std::to_string(ordinal)) {}

    void check(bool measures) {
        report_.step("read the properties of GPU " + std::to_string(ordinal_));
        try {
            info_ = kvmem::device_info(ordinal_);
        } catch (const kvmem::Error &error) {
            return failed("device", "device", error, "nvidia-smi shows the state of the GPU; reset it, or the machine");
        }
        device();
        capability("vmm", "virtual memory", DeviceCapability::vmm,
                   "pages of " + size_text(info_.minimum_granularity), "no elastic memory",
                   "vGPU and older GPUs lack it; pass the whole GPU to the virtual machine");
        capability("posix_fd", "sharing by file descriptor", DeviceCapability::posix_fd, "verified by an export",
                   "memory is shared by IPC handle only", "needs virtual memory on Linux; update the driver");
        fabric();
        rdma();
        capability("memory_pools", "memory pools", DeviceCapability::memory_pools, "available", "none",
                   "update the driver");
        capability("host_numa_vmm", "VMM on host NUMA nodes", DeviceCapability::host_numa_vmm, "available", "none",
                   "update the driver to CUDA 12.3 or newer");
        capability("batch_copies", "copies in batches", DeviceCapability::batch_copies, "cuMemcpyBatchAsync",
                   "the driver has no cuMemcpyBatchAsync: large scattered blocks take one call each",
                   "update the driver to CUDA 12.8 or newer");
        if (count_ > 1) peers();
        if (measures) rates();
    }

private:
    Finding finding(const char *id, const char *title) const {
        return {id_ + "." + id, title, Level::ok, "", "", {}};
    }

    void failed(const char *id, const char *title, const kvmem::Error &error, const char *fix) {
        Finding failure = finding(id, title);
        failure.level = Level::failed;
        failure.text = error.message();
        failure.fix = fix;
        report_.add(failure);
    }

    void device() {
        Finding device = finding("device", "device");
        const std::string version = std::to_string(info_.compute_capability_major) + "." +
                                    std::to_string(info_.compute_capability_minor);
        device.text = info_.name + ", " + size_text(info_.total_memory) + ", compute capability " + version +
                      (info_.numa_node < 0 ? "" : ", NUMA node " + std::to_string(info_.numa_node));
        device.data = {{"name", info_.name},
                       {"uuid", uuid_text(info_.uuid, info_.name)},
                       {"memory_bytes", info_.total_memory},
                       {"compute_capability", version},
                       {"multiprocessors", info_.multiprocessors},
                       {"numa_node", info_.numa_node}};
        report_.add(device);
    }

    void capability(const char *id, const char *title, DeviceCapability flag, const std::string &with,
                    const char *without, const char *fix) {
        Finding found = finding(id, title);
        const bool has = info_.capabilities.has(flag);
        found.text = has ? with : without;
        if (!has) {
            found.level = Level::missing;
            found.fix = fix;
        }
        report_.add(found);
    }

    void fabric() {
        Finding found = finding("fabric", "sharing by fabric handle");
        const bool has_channel = !names_in("/dev/nvidia-caps-imex-channels").empty();
        found.data = {{"imex_channel", has_channel}};
        if (info_.capabilities.has(DeviceCapability::fabric)) {
            found.text = "verified by an export";
        } else {
            found.level = Level::missing;
            found.text = std::string("the driver exports none") +
                         (has_channel ? "" : ", and there is no IMEX channel");
            found.fix = "needs NVLink between machines: start nvidia-imex, and give the process "
                        "/dev/nvidia-caps-imex-channels/channel0";
        }
        report_.add(found);
    }

    void rdma() {
        Finding found = finding("rdma", "RDMA");
        const bool dma_buf = info_.capabilities.has(DeviceCapability::dma_buf);
        const bool with_vmm = info_.capabilities.has(DeviceCapability::rdma_with_vmm);
        const bool peermem = exists("/sys/module/nvidia_peermem");
        found.data = {{"dma_buf", dma_buf}, {"rdma_with_vmm", with_vmm}, {"nvidia_peermem", peermem}};
        std::string parts;
        if (dma_buf) parts = "DMA-BUF";
        if (peermem) parts += std::string(parts.empty() ? "" : " and ") + "nvidia_peermem";
        found.text = "by " + parts + (with_vmm ? ", also of VMM memory" : ", not of VMM memory");
        if (!dma_buf && !peermem) {
            found.level = Level::missing;
            found.text = "network cards cannot access the memory: no DMA-BUF, and nvidia_peermem is not loaded";
            found.fix = "use the open kernel modules of the driver, or as root: modprobe nvidia_peermem";
        } else if (!with_vmm) {
            found.level = Level::limited;
            found.fix = "elastic memory then moves through the host; use device memory with network cards";
        }
        report_.add(found);
    }

    void peers() {
        Finding found = finding("peers", "other GPUs");
        Value::Array reached;
        std::string without;
        const std::uint64_t accessible = kvmem::device_info(ordinal_).can_access;
        for (std::int32_t other = 0; other < count_; ++other) {
            if (other == ordinal_) continue;
            if (((accessible >> other) & 1) != 0) {
                reached.emplace_back(other);
            } else {
                without += (without.empty() ? "" : ", ") + std::to_string(other);
            }
        }
        found.text = without.empty() ? "accesses the memory of all others"
                                     : "no access to the memory of GPU " + without;
        if (!without.empty()) {
            found.level = reached.empty() ? Level::missing : Level::limited;
            found.fix = "nvidia-smi topo -p2p r shows the reason; in a virtual machine, disable ACS on PCIe switches";
        }
        found.data = {{"can_access", std::move(reached)}};
        report_.add(found);
    }

    void rates() {
        report_.step("measure copies of GPU " + std::to_string(ordinal_));
        try {
            const auto rates = kvmem::describe_rates(kvmem::copy_rates(ordinal_));
            Finding found = finding("rates", "copy rates");
            found.text = rate_text(rates.read_bytes_per_second) + " GB/s from page-locked host memory, " +
                         rate_text(rates.write_bytes_per_second) + " GB/s to it";
            found.data = {{"from_host_bytes_per_second", static_cast<std::uint64_t>(rates.read_bytes_per_second)},
                          {"to_host_bytes_per_second", static_cast<std::uint64_t>(rates.write_bytes_per_second)},
                          {"launch_ns", static_cast<std::uint64_t>(rates.launch_ns)},
                          {"not_measured", rates.num_defaults}};
            if (rates.num_defaults > 0) {
                found.level = Level::limited;
                found.text += "; " + std::to_string(rates.num_defaults) + " rates are not measured, but estimates";
                found.fix = "run again while no other program uses the GPU";
            }
            report_.add(found);
        } catch (const kvmem::Error &error) {
            failed("rates", "copy rates", error, "nvidia-smi shows the state of the GPU and the programs that use it");
        }
    }

    Reporter &report_;
    const std::int32_t ordinal_;
    const std::int32_t count_;
    const std::string id_;
    kvmem::DeviceInfo info_;
};

}  // namespace

void check_cuda(Reporter &report, const Options &options) {
    const std::int32_t count = check_driver(report);
    for (std::int32_t each = 0; each < count; ++each) Gpu(report, each, count).check(options.measures);
}

}  // namespace doctor
