// SPDX-License-Identifier: Apache-2.0
// A line of a table, and its words as values. README.md has the format.
#pragma once

#include "../words.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// An expectation that is not met, or a line that cannot be run.
struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The words of a list of words.h.
class Words {
public:
    template <std::size_t N>
    Words(const word (&list)[N]) : first_(list), end_(list + N - 1) {}

    const ::word *begin() const { return first_; }
    const ::word *end() const { return end_; }

private:
    const ::word *first_;
    const ::word *end_;
};

using Numbers = std::vector<std::uint64_t>;
using Results = std::map<std::string, std::string>;

std::uint64_t parse_number(const std::string &text);
std::vector<std::string> split(const std::string &text, char separator);
std::vector<std::byte> parse_bytes(const std::string &hex);
// A number of a result as its word; flags as words joined by '+', in the order of their bits.
std::string word_of(std::uint64_t value, const Words &words);
std::string flags_of(std::uint64_t bits, const Words &words);

class Step {
public:
    explicit Step(const std::string &line);

    const std::string &call() const { return call_; }
    const std::string &status() const { return status_; }
    const std::string &name() const;

    // Values of keys. Each key that is read is known; finish() fails for any other one.
    bool has(const std::string &key) const;
    const std::string &text(const std::string &key) const;
    std::uint64_t number(const std::string &key, std::uint64_t missing = 0) const;
    std::uint32_t number32(const std::string &key) const;
    std::uint64_t word(const std::string &key, const Words &words) const;
    std::uint64_t flags(const std::string &key, const Words &words) const;
    std::vector<std::string> list(const std::string &key) const;
    Numbers numbers(const std::string &key) const;
    void finish() const;

    // Compares the keys after the status.
    void compare(const std::string &status, const Results &results) const;

private:
    std::string call_;
    std::string name_;
    std::map<std::string, std::string> arguments_;
    std::string status_ = "OK";
    std::map<std::string, std::string> expected_;
    mutable std::set<std::string> read_;
};
