// SPDX-License-Identifier: Apache-2.0
#include "finding.hpp"

namespace doctor {

namespace {

constexpr Level levels[] = {Level::ok, Level::limited, Level::missing, Level::failed, Level::skipped};

std::string text_of(const Value &value, std::string_view name) {
    const Value *const found = value.find(name);
    return found ? std::string(found->text()) : std::string();
}

std::uint64_t number_of(const Value &value, std::string_view name) {
    const Value *const found = value.find(name);
    const auto *const number = found ? found->as<std::uint64_t>() : nullptr;
    return number ? *number : 0;
}

bool is(const Value &value, std::string_view name) {
    const Value *const found = value.find(name);
    const bool *const flag = found ? found->as<bool>() : nullptr;
    return flag && *flag;
}

Level level_of(const Value &value) {
    const auto text = text_of(value, "status");
    for (const Level level : levels) {
        if (text == name(level)) return level;
    }
    return Level::failed;
}

Value::Object data_of(const Value &value) {
    const Value *const found = value.find("data");
    const auto *const members = found ? found->as<Value::Object>() : nullptr;
    return members ? *members : Value::Object();
}

}  // namespace

const char *name(Level level) {
    switch (level) {
    case Level::ok: return "ok";
    case Level::limited: return "limited";
    case Level::missing: return "missing";
    case Level::failed: return "failed";
    case Level::skipped: return "skipped";
    }
    return "failed";
}

Value Finding::to_value() const {
    return Value::Object{{"id", id},     {"title", title}, {"status", name(level)},
                         {"text", text}, {"fix", fix},     {"data", data}};
}

Finding Finding::from_value(const Value &value) {
    return {text_of(value, "id"),   text_of(value, "title"), level_of(value),
            text_of(value, "text"), text_of(value, "fix"),   data_of(value)};
}

Value Route::to_value() const {
    Value::Array list;
    for (const Other &other : others) {
        list.push_back(Value::Object{
            {"method", other.method},
            {"method_name", other.method_name},
            {"reason", other.reason},
            {"possible", !other.is_impossible},
            {"estimated_bytes_per_second", other.bytes_per_second}});
    }
    return Value::Object{{"id", id()},
                         {"from", from},
                         {"to", to},
                         {"status", name(level)},
                         {"method", method},
                         {"method_name", method_name},
                         {"bytes_per_second", bytes_per_second},
                         {"estimated_bytes_per_second", estimated_bytes_per_second},
                         {"text", text},
                         {"fix", fix},
                         {"others", std::move(list)},
                         {"data", data}};
}

Route Route::from_value(const Value &value) {
    Route route;
    route.from = text_of(value, "from");
    route.to = text_of(value, "to");
    route.level = level_of(value);
    route.method = text_of(value, "method");
    route.method_name = text_of(value, "method_name");
    route.bytes_per_second = number_of(value, "bytes_per_second");
    route.estimated_bytes_per_second = number_of(value, "estimated_bytes_per_second");
    route.text = text_of(value, "text");
    route.fix = text_of(value, "fix");
    route.data = data_of(value);
    const Value *const found = value.find("others");
    if (const auto *const list = found ? found->as<Value::Array>() : nullptr) {
        for (const Value &each : *list) {
            route.others.push_back(
                {text_of(each, "method"), text_of(each, "method_name"), text_of(each, "reason"), !is(each, "possible"),
                 number_of(each, "estimated_bytes_per_second")});
        }
    }
    return route;
}

}  // namespace doctor
