// SPDX-License-Identifier: Apache-2.0
// The machine's description, from /proc and uname.
#include "common/machine.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace bench {
namespace {

std::string cpu_model()
{
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.rfind("model name", 0) == 0)
            return line.substr(line.find(':') + 2);
    return "unknown processor";
}

// "16 cores", or "2 of 16 cores" for a process that is restricted to two of them (taskset).
std::string cores()
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) == online)
        return std::to_string(online) + " cores";
    return std::to_string(CPU_COUNT(&allowed)) + " of " + std::to_string(online) + " cores";
}

long memory_gib()
{
    const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
    return std::lround(pages * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30));
}

uint64_t read_number(const char *path, const std::string &key = {})
{
    std::ifstream file(path);
    std::string word;
    uint64_t number = 0;
    if (!key.empty())
        while (file >> word && word != key)
            ;
    return file >> number ? number : std::numeric_limits<uint64_t>::max();
}

} // namespace

std::string machine_description()
{
    utsname system{};
    uname(&system);
    return cpu_model() + ", " + cores() + ", " + std::to_string(memory_gib()) + " GiB, " + system.sysname + " " +
           system.release;
}

uint64_t free_bytes()
{
    const uint64_t machine = read_number("/proc/meminfo", "MemAvailable:") * 1024;
    const uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
    const uint64_t used = read_number("/sys/fs/cgroup/memory.current");
    return limit > used ? std::min(machine, limit - used) : machine;
}

} // namespace bench
