// SPDX-License-Identifier: Apache-2.0
// Loads the shared library of its argument in a new process, and prints the duration in nanoseconds.
#include <chrono>
#include <cstdio>
#include <dlfcn.h>

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const auto start = std::chrono::steady_clock::now();
    if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    const auto taken = std::chrono::steady_clock::now() - start;
    std::printf("%lld\n",
                static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count()));
    return 0;
}
