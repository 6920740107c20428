// SPDX-License-Identifier: Apache-2.0
// Values as JSON.
#pragma once

#include "value.hpp"

#include <string>

namespace doctor {

/// Valid JSON for any value: bytes that are not UTF-8 become U+FFFD, and numbers that are not finite null.
std::string to_json(const Value &value);

}  // namespace doctor
