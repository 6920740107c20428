// SPDX-License-Identifier: Apache-2.0
// kvmem-doctor store: what a store is and contains.
#pragma once

#include <string>

namespace doctor {

/// The description, or the help, that the arguments after "store" ask for. Throws UsageError, or kvmem::Error if there is no
/// store that can be read.
std::string describe_store(int argc, char **argv);

}  // namespace doctor
