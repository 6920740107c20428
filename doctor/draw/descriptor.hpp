// SPDX-License-Identifier: Apache-2.0
// The shapes in a layout descriptor, as kvmem_layout_export writes it. docs/layout-descriptor.md has it byte by byte.
#pragma once

#include <kvmem.hpp>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace doctor {

/// The shape of a part. That of a layout without parts has no name.
struct NamedShape {
    std::string name;
    kvmem::LayoutConfig config;
};

/// The bytes are no descriptor that can be read. The message has the reason.
struct DescriptorError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::vector<NamedShape> read_descriptor(std::string_view bytes);

}  // namespace doctor
