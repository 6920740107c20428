// SPDX-License-Identifier: Apache-2.0
// Parses lines and values, and compares results.
#include "step.hpp"

#include <limits>
#include <sstream>

std::uint64_t parse_number(const std::string &text) {
    std::size_t end = 0;
    std::uint64_t value = 0;
    try {
        // Negative numbers are the statuses of status_name.
        value = !text.empty() && text[0] == '-' ? static_cast<std::uint64_t>(std::stoll(text, &end))
                                                : std::stoull(text, &end, 0);
    } catch (const std::logic_error &) {
        end = 0;
    }
    if (end == 0 || end != text.size()) throw Failure("'" + text + "' is not a number");
    return value;
}

std::vector<std::string> split(const std::string &text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

std::vector<std::byte> parse_bytes(const std::string &hex) {
    std::vector<std::byte> bytes;
    if (hex.size() % 2 != 0) throw Failure("'" + hex + "' has an odd number of digits");
    for (std::size_t i = 0; i < hex.size(); i += 2) {
        bytes.push_back(static_cast<std::byte>(parse_number("0x" + hex.substr(i, 2))));
    }
    return bytes;
}

std::string word_of(std::uint64_t value, const Words &words) {
    for (const auto &[word, constant] : words) {
        if (constant == value) return word;
    }
    return std::to_string(value);
}

std::string flags_of(std::uint64_t bits, const Words &words) {
    std::string text;
    for (unsigned bit = 0; bit < 64; ++bit) {
        if ((bits >> bit & 1) == 0) continue;
        if (!text.empty()) text += '+';
        text += word_of(std::uint64_t{1} << bit, words);
    }
    return text;
}

Step::Step(const std::string &line) {
    const auto words = split(line, ' ');
    call_ = words[0];
    bool after = false;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string &word = words[i];
        const std::size_t equals = word.find('=');
        if (word == "->") {
            if (after || ++i == words.size()) throw Failure("'->' is followed by one status");
            status_ = words[i];
            after = true;
        } else if (equals != std::string::npos) {
            auto &keys = after ? expected_ : arguments_;
            if (!keys.emplace(word.substr(0, equals), word.substr(equals + 1)).second) {
                throw Failure("the key of '" + word + "' is given twice");
            }
        } else if (i == 1 && !after) {
            name_ = word;
        } else {
            throw Failure("'" + word + "' is not key=value");
        }
    }
}

const std::string &Step::name() const {
    if (name_.empty()) throw Failure(call_ + " needs the name of an object");
    return name_;
}

bool Step::has(const std::string &key) const {
    read_.insert(key);
    return arguments_.count(key) != 0;
}

const std::string &Step::text(const std::string &key) const {
    if (!has(key)) throw Failure(call_ + " needs the key " + key);
    return arguments_.at(key);
}

std::uint64_t Step::number(const std::string &key, std::uint64_t missing) const {
    if (!has(key)) return missing;
    return text(key) == "forever" ? std::numeric_limits<std::uint64_t>::max() : parse_number(text(key));
}

std::uint32_t Step::number32(const std::string &key) const {
    return static_cast<std::uint32_t>(number(key));
}

std::uint64_t Step::word(const std::string &key, const Words &words) const {
    if (!has(key)) return 0;
    for (const auto &[word, constant] : words) {
        if (word == text(key)) return constant;
    }
    throw Failure("'" + text(key) + "' is not a word for " + key);
}

std::uint64_t Step::flags(const std::string &key, const Words &words) const {
    std::uint64_t bits = 0;
    if (!has(key)) return 0;
    for (const std::string &flag : split(text(key), '+')) {
        std::uint64_t bit = 0;
        for (const auto &[word, constant] : words) {
            if (word == flag) bit = constant;
        }
        if (bit == 0) throw Failure("'" + flag + "' is not a word for " + key);
        bits |= bit;
    }
    return bits;
}

std::vector<std::string> Step::list(const std::string &key) const {
    return has(key) ? split(text(key), ',') : std::vector<std::string>();
}

Numbers Step::numbers(const std::string &key) const {
    Numbers numbers;
    for (const std::string &item : list(key)) numbers.push_back(parse_number(item));
    return numbers;
}

void Step::finish() const {
    for (const auto &[key, value] : arguments_) {
        if (read_.count(key) == 0) throw Failure(call_ + " has no key " + key);
    }
}

namespace {

// Hexadecimal numbers in a list are compared by value.
std::string in_decimal(const std::string &text) {
    std::string result;
    for (const std::string &item : split(text, ',')) {
        if (!result.empty()) result += ',';
        result += item.rfind("0x", 0) == 0 ? std::to_string(parse_number(item)) : item;
    }
    return result;
}

}  // namespace

void Step::compare(const std::string &status, const Results &results) const {
    if (status != status_) {
        const auto message = results.find("contains");
        throw Failure(call_ + ": expected " + status_ + ", found " + status +
                      (message == results.end() ? "" : ": " + message->second));
    }
    for (const auto &[key, value] : expected_) {
        const auto found = results.find(key);
        if (found == results.end()) throw Failure(call_ + " returns no " + key);
        const bool equal = key == "contains" ? found->second.find(value) != std::string::npos
                                             : found->second == in_decimal(value);
        if (!equal) throw Failure(call_ + ": expected " + key + "=" + value + ", found " + found->second);
    }
}
