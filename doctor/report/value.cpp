// SPDX-License-Identifier: Apache-2.0
#include "value.hpp"

#include <cstring>

namespace doctor {

namespace {

// Deeper values are not read: nothing here writes them.
constexpr int max_nested = 32;

template <typename T>
void append(std::string &bytes, T number) {
    char raw[sizeof number];
    std::memcpy(raw, &number, sizeof number);
    bytes.append(raw, sizeof raw);
}

void append_text(std::string &bytes, std::string_view text) {
    append(bytes, static_cast<std::uint64_t>(text.size()));
    bytes.append(text);
}

// Each value starts with its alternative.
struct Writer {
    std::string &bytes;

    void operator()(std::monostate) const { bytes += '\0'; }
    void operator()(bool value) const { (bytes += '\1') += value ? '\1' : '\0'; }
    void operator()(std::int64_t value) const { append(bytes += '\2', value); }
    void operator()(std::uint64_t value) const { append(bytes += '\3', value); }
    void operator()(double value) const { append(bytes += '\4', value); }
    void operator()(const std::string &value) const { append_text(bytes += '\5', value); }
    void operator()(const Value::Array &values) const {
        append(bytes += '\6', static_cast<std::uint64_t>(values.size()));
        for (const Value &value : values) value.visit(*this);
    }
    void operator()(const Value::Object &members) const {
        append(bytes += '\7', static_cast<std::uint64_t>(members.size()));
        for (const Member &member : members) {
            append_text(bytes, member.name);
            member.value.visit(*this);
        }
    }
};

class Reader {
public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}

    std::optional<Value> value(int depth) {
        const auto kind = number<char>();
        if (!kind || depth > max_nested) return {};
        switch (*kind) {
        case 0: return Value();
        case 1: return of(number<char>(), [](char value) { return Value(value != 0); });
        case 2: return of(number<std::int64_t>(), [](std::int64_t value) { return Value(value); });
        case 3: return of(number<std::uint64_t>(), [](std::uint64_t value) { return Value(value); });
        case 4: return of(number<double>(), [](double value) { return Value(value); });
        case 5: return of(text(), [](std::string value) { return Value(std::move(value)); });
        case 6: return array(depth);
        case 7: return object(depth);
        default: return {};
        }
    }
    bool is_at_end() const { return rest_.empty(); }

private:
    template <typename T>
    std::optional<T> number() {
        T value;
        if (rest_.size() < sizeof value) return {};
        std::memcpy(&value, rest_.data(), sizeof value);
        rest_.remove_prefix(sizeof value);
        return value;
    }
    std::optional<std::string> text() {
        const auto size = number<std::uint64_t>();
        if (!size || *size > rest_.size()) return {};
        std::string value(rest_.substr(0, *size));
        rest_.remove_prefix(*size);
        return value;
    }
    std::optional<Value> array(int depth) {
        const auto size = number<std::uint64_t>();
        if (!size) return {};
        Value::Array values;
        for (std::uint64_t i = 0; i < *size; ++i) {
            auto each = value(depth + 1);
            if (!each) return {};
            values.push_back(*std::move(each));
        }
        return Value(std::move(values));
    }
    std::optional<Value> object(int depth) {
        const auto size = number<std::uint64_t>();
        if (!size) return {};
        Value::Object members;
        for (std::uint64_t i = 0; i < *size; ++i) {
            auto name = text();
            if (!name) return {};
            auto each = value(depth + 1);
            if (!each) return {};
            members.push_back({*std::move(name), *std::move(each)});
        }
        return Value(std::move(members));
    }
    template <typename T, typename Then>
    static std::optional<Value> of(std::optional<T> value, Then then) {
        if (!value) return {};
        return then(*std::move(value));
    }

    std::string_view rest_;
};

}  // namespace

std::string_view Value::text() const {
    const auto *const text = as<std::string>();
    return text ? std::string_view(*text) : std::string_view();
}

const Value *Value::find(std::string_view name) const {
    const auto *const members = as<Object>();
    if (!members) return nullptr;
    for (const Member &member : *members) {
        if (member.name == name) return &member.value;
    }
    return nullptr;
}

std::string Value::encode() const {
    std::string bytes;
    visit(Writer{bytes});
    return bytes;
}

std::optional<Value> Value::decode(std::string_view bytes) {
    Reader reader(bytes);
    auto value = reader.value(0);
    if (!value || !reader.is_at_end()) return {};
    return value;
}

}  // namespace doctor
