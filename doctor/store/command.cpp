// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include "../options.hpp"

#include <kvmem.hpp>

#include <string_view>

namespace doctor {

std::string describe_store(int argc, char **argv) {
    if (argc > 1 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
        return R"(Usage: kvmem-doctor store FOLDER
Prints what a store is and contains: its writer, identity, shape, occupancy, namespaces, age and damage. Changes nothing; the
store may be open in a process.

Exit status:
  0  it was printed
  1  there is no store, or it cannot be read
  2  the command line is wrong
  3  it could not be written
)";
    }
    if (argc != 2) throw UsageError("store: give the folder of one store");
    return kvmem::Store::describe(argv[1]);
}

}  // namespace doctor
