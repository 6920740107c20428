// SPDX-License-Identifier: Apache-2.0
// kvmem-doctor draw: a picture of a layout.
#pragma once

#include <string>

namespace doctor {

/// The picture, or the help, that the arguments after "draw" ask for. Throws UsageError, DescriptorError, or
/// kvmem::Error if a descriptor has a shape that no layout has.
std::string draw(int argc, char **argv);

}  // namespace doctor
