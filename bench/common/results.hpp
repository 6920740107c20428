// SPDX-License-Identifier: Apache-2.0
// Rows of results, written as JSON and printed.
#pragma once

#include "common/samples.hpp"

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {

// The value of a parameter: a text or an integer, stored as JSON.
class parameter_value {
  public:
    parameter_value(const std::string &text);
    parameter_value(const char *text) : parameter_value(std::string(text)) {}
    template <typename Number, typename = std::enable_if_t<std::is_integral_v<Number>>>
    parameter_value(Number number) : json_(std::to_string(number))
    {
    }

    const std::string &json() const { return json_; }

  private:
    std::string json_;
};

using parameters = std::vector<std::pair<std::string, parameter_value>>;

// For GB/s more is better, for all other units less.
struct row {
    std::string name;
    bench::parameters parameters;
    samples ours;
    std::string reference_name;
    samples reference;
    samples ceiling; // empty: none
    std::string unit;
};

class results {
  public:
    explicit results(std::string path) : path_(std::move(path)) {}

    // Prints the row, and writes all rows, so that none is lost if a later one ends the program.
    void add(const row &measured);
    // Writes all rows to the path, if there is one.
    void write() const;

  private:
    std::string path_;
    std::vector<std::string> rows_;
};

} // namespace bench
