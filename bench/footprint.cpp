// SPDX-License-Identifier: Apache-2.0
// The cost of kvmem while nothing moves: the CPU time of an idle agent, the size of the library, the time to load it.
#include "common/clock.hpp"
#include "common/kv.hpp"
#include "common/program.hpp"
#include "reference/nixl.hpp"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <filesystem>

namespace {

using namespace bench;

// CPU time of this process while its main thread sleeps, in percent of a core.
double idle_cpu_percent(time_t seconds)
{
    const double start = now_ns();
    const double before = cpu_seconds();
    const timespec pause = {seconds, 0};
    nanosleep(&pause, nullptr);
    return 100 * (cpu_seconds() - before) / ((now_ns() - start) * 1e-9);
}

void measure_idle(const options &chosen, results &found)
{
    const time_t seconds = chosen.quick ? 1 : 5;
    const std::vector<samples> taken = alternate(chosen.quick ? 1 : 3, {
        [&] {
            const kv::agent agent = kv::make_agent("idle");
            return idle_cpu_percent(seconds);
        },
        [&] {
            const nixl::agent agent("reference-idle");
            return idle_cpu_percent(seconds);
        },
    });
    found.add({"footprint-idle-cpu", {{"seconds", seconds}, {"limit", 3}}, taken[0],
               "NIXL agent with a progress thread, delay 1000 us", taken[1], {}, "% of a core"});
}

std::string library_path()
{
    Dl_info found{};
    if (dladdr(reinterpret_cast<void *>(&kvmem_version_string), &found) == 0)
        throw std::runtime_error("cannot find the path of the loaded libkvmem.so");
    return std::filesystem::canonical(found.dli_fname).string();
}

std::filesystem::path own_directory()
{
    return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

void measure_size(const std::string &library, results &found)
{
    const std::filesystem::path stripped = own_directory() / "libkvmem-stripped.so";
    if (std::system(("strip -s -o '" + stripped.string() + "' '" + library + "'").c_str()) != 0)
        throw std::runtime_error("strip failed");
    const double megabytes = static_cast<double>(std::filesystem::file_size(stripped)) / 1e6;
    std::filesystem::remove(stripped);
    const parameters measured = {{"file", "libkvmem.so, stripped"}, {"limit", 5}};
    found.add({"footprint-size", measured, {megabytes}, "the limit", {5}, {}, "MB"});
}

double load_ms(const std::string &library)
{
    const std::string probe = (own_directory() / "load_probe").string();
    // Without KVMEM_NIXL_LIBRARY, so that loading the library does not find NIXL.
    FILE *output = popen(("env -u KVMEM_NIXL_LIBRARY '" + probe + "' '" + library + "'").c_str(), "r");
    long long taken_ns = 0;
    const int read = output != nullptr ? std::fscanf(output, "%lld", &taken_ns) : 0;
    if (output == nullptr || pclose(output) != 0 || read != 1)
        throw std::runtime_error("load_probe failed");
    return static_cast<double>(taken_ns) * 1e-6;
}

void measure_load(const options &chosen, const std::string &library, results &found)
{
    const std::vector<samples> taken = alternate(chosen.rounds(21), {[&] { return load_ms(library); }});
    const parameters measured = {{"process", "fresh"}, {"limit", 10}};
    found.add({"footprint-load", measured, taken[0], "the limit", {10}, {}, "ms"});
}

void measure(const options &chosen, results &found)
{
    const std::string library = library_path();
    measure_size(library, found);
    measure_load(chosen, library, found);
    measure_idle(chosen, found);
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
