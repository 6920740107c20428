// SPDX-License-Identifier: Apache-2.0
// Structured values, in which a check's process sends its report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace doctor {

struct Member;

class Value {
public:
    using Array = std::vector<Value>;
    /// Members in the order in which they are printed.
    using Object = std::vector<Member>;

    Value() = default;
    Value(bool value) : data_(value) {}
    Value(std::int32_t value) : data_(static_cast<std::int64_t>(value)) {}
    Value(std::int64_t value) : data_(value) {}
    Value(std::uint32_t value) : data_(static_cast<std::int64_t>(value)) {}
    Value(std::uint64_t value) : data_(value) {}
    Value(double value) : data_(value) {}
    Value(std::string value) : data_(std::move(value)) {}
    Value(std::string_view value) : data_(std::string(value)) {}
    Value(const char *value) : data_(std::string(value)) {}
    Value(Array value) : data_(std::move(value)) {}
    Value(Object value);

    template <typename T>
    const T *as() const {
        return std::get_if<T>(&data_);
    }
    /// The text of a string; empty for other values.
    std::string_view text() const;
    /// The member of an object; NULL if there is none.
    const Value *find(std::string_view name) const;

    /// Bytes that decode() reads, in this process or in one that was forked from it.
    std::string encode() const;
    /// Returns nothing if the bytes are damaged.
    static std::optional<Value> decode(std::string_view bytes);

    template <typename Visitor>
    auto visit(Visitor &&visitor) const {
        return std::visit(std::forward<Visitor>(visitor), data_);
    }

private:
    std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object> data_;
};

struct Member {
    std::string name;
    Value value;
};

inline Value::Value(Object value) : data_(std::move(value)) {}

}  // namespace doctor
