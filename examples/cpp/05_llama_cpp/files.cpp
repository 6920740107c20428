// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <stdlib.h>

#include <cerrno>
#include <system_error>

SessionFiles::SessionFiles(const std::filesystem::path &parent) {
    std::string name = parent / "kvmem-llama-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) {
        throw std::system_error(errno, std::generic_category(), "cannot create a directory in " + parent.string());
    }
    directory_ = name;
}

SessionFiles::~SessionFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
}
