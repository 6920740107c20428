// SPDX-License-Identifier: Apache-2.0
// The command line of a bench program: [--quick] [--seconds N] [--output results.json].
#include "common/program.hpp"

#include <cstdio>
#include <exception>
#include <malloc.h>
#include <stdexcept>

namespace bench {
namespace {

// glibc gives large free blocks back to the kernel in a young process, and each run would fault them in anew:
// 0.5 ms of noise per 10,000 descriptors on either side. An engine that has run a while does not see that.
void keep_freed_memory()
{
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

void measure_as_told(const std::vector<std::string> &arguments, measure_function measure)
{
    options chosen;
    std::string output;
    for (size_t index = 0; index < arguments.size(); ++index) {
        if (arguments[index] == "--quick")
            chosen.quick = true;
        else if (arguments[index] == "--output" && index + 1 < arguments.size())
            output = arguments[++index];
        else if (arguments[index] == "--seconds" && index + 1 < arguments.size())
            chosen.seconds = std::stod(arguments[++index]);
        else
            throw std::invalid_argument("unknown argument " + arguments[index] +
                                        "; usage: [--quick] [--seconds N] [--output results.json]");
    }
    results found(output);
    measure(chosen, found);
    found.write();
}

} // namespace

int run_program(int argc, char **argv, measure_function measure, peer_function as_peer)
{
    keep_freed_memory();
    std::vector<std::string> arguments(argv + 1, argv + argc);
    try {
        if (as_peer != nullptr && !arguments.empty() && arguments.front() == "--peer")
            as_peer({arguments.begin() + 1, arguments.end()});
        else
            measure_as_told(arguments, measure);
        return 0;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "%s: %s\n", argv[0], failure.what());
        return 1;
    }
}

} // namespace bench
