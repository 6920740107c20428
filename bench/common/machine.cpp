// SPDX-License-Identifier: Apache-2.0
// The machine's description, from /proc and uname.
#include "common/machine.hpp"

#include <cmath>
#include <fstream>
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

long memory_gib()
{
    const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
    return std::lround(pages * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30));
}

} // namespace

std::string machine_description()
{
    utsname system{};
    uname(&system);
    return cpu_model() + ", " + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " cores, " +
           std::to_string(memory_gib()) + " GiB, " + system.sysname + " " + system.release;
}

} // namespace bench
