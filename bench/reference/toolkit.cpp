// SPDX-License-Identifier: Apache-2.0
// Searches the loader's path, then the folders of toolkits and Python wheels.
#include "reference/toolkit.hpp"

#include <glob.h>

namespace cuda {
namespace {

void *open_first_match(const std::string &pattern)
{
    glob_t found{};
    void *library = nullptr;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
        for (size_t index = 0; index < found.gl_pathc && library == nullptr; ++index)
            library = dlopen(found.gl_pathv[index], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

} // namespace

void *open_toolkit(std::initializer_list<const char *> names)
{
    const char *folders[] = {"/usr/local/cuda/lib64/", "/usr/local/cuda-*/lib64/",
                             "/usr/local/lib/python3*/*-packages/nvidia/*/lib/",
                             "/usr/lib/python3*/*-packages/nvidia/*/lib/"};
    for (const char *name : names) {
        if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL))
            return library;
        for (const char *folder : folders)
            if (void *library = open_first_match(std::string(folder) + name))
                return library;
    }
    throw std::runtime_error(std::string("found neither ") + *names.begin() + " nor an older one");
}

} // namespace cuda
