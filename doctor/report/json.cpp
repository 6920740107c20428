// SPDX-License-Identifier: Apache-2.0
#include "json.hpp"

#include "text.hpp"

#include <cmath>
#include <cstdio>

namespace doctor {

namespace {

class Printer {
public:
    std::string out;

    void print(const Value &value) { value.visit(*this); }

    void operator()(std::monostate) { out += "null"; }
    void operator()(bool value) { out += value ? "true" : "false"; }
    void operator()(std::int64_t value) { out += std::to_string(value); }
    void operator()(std::uint64_t value) { out += std::to_string(value); }
    void operator()(double value) {
        if (!std::isfinite(value)) {
            out += "null";
            return;
        }
        char text[64];
        std::snprintf(text, sizeof text, "%.6g", value);
        out += text;
    }
    void operator()(const std::string &value) { out += as_json(value); }
    void operator()(const Value::Array &values) {
        list('[', ']', values, [this](const Value &value) { print(value); });
    }
    void operator()(const Value::Object &members) {
        list('{', '}', members, [this](const Member &member) {
            out += as_json(member.name) + ": ";
            print(member.value);
        });
    }

private:
    template <typename List, typename Print>
    void list(char open, char close, const List &elements, Print print_one) {
        out += open;
        indent_ += 2;
        bool is_first = true;
        for (const auto &element : elements) {
            if (!is_first) out += ',';
            is_first = false;
            new_line();
            print_one(element);
        }
        indent_ -= 2;
        if (!is_first) new_line();
        out += close;
    }
    void new_line() { (out += '\n').append(indent_, ' '); }

    std::size_t indent_ = 0;
};

}  // namespace

std::string to_json(const Value &value) {
    Printer printer;
    printer.print(value);
    return printer.out += '\n';
}

}  // namespace doctor
