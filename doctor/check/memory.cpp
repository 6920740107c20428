// SPDX-License-Identifier: Apache-2.0
// Host memory: what is available, huge pages, and the limit of locked memory.
#include "../machine/files.hpp"
#include "../machine/memory.hpp"
#include "../report/text.hpp"
#include "checks.hpp"

#include <kvmem.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace doctor {

namespace {

const char huge_pages_directory[] = "/sys/kernel/mm/hugepages";

Finding available() {
    const auto total = kilobytes_of("/proc/meminfo", "MemTotal").value_or(0);
    const auto left = available_memory();
    return {"memory.available", "available", Level::ok, size_text(left) + " of " + size_text(total), "",
            {{"available_bytes", left}, {"total_bytes", total}, {"page_bytes", std::uint64_t(sysconf(_SC_PAGESIZE))}}};
}

// ---- Huge pages ----

struct Pool {
    std::uint64_t page = 0, total = 0, free = 0;
};

std::vector<Pool> pools() {
    std::vector<Pool> found;
    for (const std::string &name : names_in(huge_pages_directory)) {
        const std::string directory = std::string(huge_pages_directory) + "/" + name;
        const auto kilobytes = std::strtoull(name.c_str() + std::strcspn(name.c_str(), "0123456789"), nullptr, 10);
        found.push_back({kilobytes * 1024, number_of(directory + "/nr_hugepages").value_or(0),
                         number_of(directory + "/free_hugepages").value_or(0)});
    }
    return found;
}

// An allocation of one page, because a free page may be reserved, or a control group may exclude it.
std::string failure_of_page(std::uint64_t page) {
    kvmem::SystemOptions options;
    options.size = options.huge_page_size = page;
    options.flags = kvmem::SystemFlag::huge_pages_required;
    try {
        kvmem::Region::create_system(options);
        return "";
    } catch (const kvmem::Error &error) {
        return std::string(error.message());
    }
}

Finding reserved_huge_pages() {
    Finding finding{"memory.huge_pages", "reserved huge pages", Level::missing, "", "", {}};
    Value::Array list;
    for (const Pool &pool : pools()) {
        list.push_back(Value::Object{{"page_bytes", pool.page}, {"total", pool.total}, {"free", pool.free}});
        if (pool.total == 0) continue;
        const std::string failure = pool.free == 0 ? "all are in use" : failure_of_page(pool.page);
        const bool can_use = failure.empty();
        finding.text += (finding.text.empty() ? "" : "; ") + std::to_string(pool.free) + " of " +
                        std::to_string(pool.total) + " pages of " + size_text(pool.page) + " free" +
                        (can_use || pool.free == 0 ? "" : ", but " + failure);
        if (can_use) finding.level = Level::ok;
    }
    if (finding.text.empty()) finding.text = "none are reserved; kvmem uses transparent huge pages or ordinary ones";
    if (finding.level != Level::ok) {
        finding.fix = "reserve pages as root, for example 1024 of 2 MiB: sysctl vm.nr_hugepages=1024";
    }
    finding.data = {{"pools", std::move(list)}};
    return finding;
}

Finding transparent_huge_pages() {
    const auto text = text_of("/sys/kernel/mm/transparent_hugepage/enabled").value_or("");
    const std::size_t open = text.find('['), close = text.find(']');
    const std::string mode =
        open == std::string::npos || close == std::string::npos ? "" : text.substr(open + 1, close - open - 1);
    Finding finding{"memory.transparent_huge_pages", "transparent huge pages", Level::ok, mode, "", {{"mode", mode}}};
    if (mode.empty()) {
        finding.level = Level::missing;
        finding.text = "the kernel has none";
        finding.fix = "boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE, or reserve huge pages";
    } else if (mode == "never") {
        finding.level = Level::limited;
        finding.fix = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    }
    return finding;
}

// ---- Locked memory ----

// Locks one page more than the limit, without touching memory. CAP_IPC_LOCK permits that, but only outside user
// namespaces, so the capability alone does not show it.
bool exceeds(std::uint64_t limit) {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t size = (limit / page + 1) * page;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) return false;
    const bool is_locked = mlock2(memory, size, MLOCK_ONFAULT) == 0;
    munmap(memory, size);
    return is_locked;
}

Finding locked_memory() {
    rlimit limit = {};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    Finding finding{"memory.memlock", "locked memory", Level::ok, "no limit", "", {}};
    const bool has_limit = limit.rlim_cur != RLIM_INFINITY;
    const bool is_privileged = has_limit && exceeds(limit.rlim_cur);
    if (is_privileged) {
        finding.text = "no limit for this process, which may exceed RLIMIT_MEMLOCK of " + size_text(limit.rlim_cur);
    } else if (has_limit) {
        finding.level = Level::limited;
        finding.text = "at most " + size_text(limit.rlim_cur) +
                       ": registrations with RDMA network cards count; CUDA's page locks do not";
        finding.fix = "ulimit -l unlimited; docker run --ulimit memlock=-1; systemd: LimitMEMLOCK=infinity";
    }
    finding.data = {{"limit_bytes", has_limit ? Value(std::uint64_t(limit.rlim_cur)) : Value()},
                    {"exceeds_limit", is_privileged}};
    return finding;
}

}  // namespace

void check_memory(Reporter &report) {
    report.step("read the memory of the machine");
    report.add(available());
    report.step("allocate a huge page");
    report.add(reserved_huge_pages());
    report.add(transparent_huge_pages());
    report.step("lock memory");
    report.add(locked_memory());
}

}  // namespace doctor
