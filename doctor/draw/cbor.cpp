// SPDX-License-Identifier: Apache-2.0
#include "cbor.hpp"

namespace doctor {

namespace {

// Deeper items are not read: kvmem writes none.
constexpr int max_nested = 16;

enum Major { unsigned_integer, negative_integer, byte_string, text_string, array, map, tag, simple };
enum Simple { is_false = 20, is_true = 21, null = 22 };

class Reader {
public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}

    std::optional<Value> item(int depth) {
        const auto head = this->head();
        if (!head || depth > max_nested) return {};
        switch (head->major) {
        case unsigned_integer: return Value(head->number);
        case byte_string:
        case text_string: return take(head->number, [](std::string_view text) { return Value(text); });
        case array: return elements(head->number, depth);
        case map: return members(head->number, depth);
        case simple: return simple_of(head->number);
        default: return {};
        }
    }
    bool is_at_end() const { return rest_.empty(); }

private:
    struct Head {
        int major;
        std::uint64_t number;
    };

    std::optional<Head> head() {
        if (rest_.empty()) return {};
        const auto first = static_cast<unsigned char>(rest_.front());
        rest_.remove_prefix(1);
        const unsigned detail = first & 31U;
        Head head = {first >> 5, detail};
        if (detail < 24) return head;
        // 24 to 27: the number has 1, 2, 4 or 8 bytes. kvmem writes no item of indefinite length.
        const std::size_t size = std::size_t(1) << (detail - 24);
        if (detail > 27 || rest_.size() < size) return {};
        head.number = 0;
        for (const char byte : rest_.substr(0, size)) head.number = head.number << 8 | static_cast<unsigned char>(byte);
        rest_.remove_prefix(size);
        return head;
    }
    template <typename Then>
    std::optional<Value> take(std::uint64_t size, Then then) {
        if (size > rest_.size()) return {};
        const auto text = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return then(text);
    }
    std::optional<Value> elements(std::uint64_t count, int depth) {
        Value::Array values;
        for (std::uint64_t i = 0; i < count; ++i) {
            auto each = item(depth + 1);
            if (!each) return {};
            values.push_back(*std::move(each));
        }
        return Value(std::move(values));
    }
    std::optional<Value> members(std::uint64_t count, int depth) {
        Value::Object members;
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto name = head();
            if (!name || name->major != text_string) return {};
            const auto key = take(name->number, [](std::string_view text) { return Value(text); });
            if (!key) return {};
            auto each = item(depth + 1);
            if (!each) return {};
            members.push_back({std::string(key->text()), *std::move(each)});
        }
        return Value(std::move(members));
    }
    static std::optional<Value> simple_of(std::uint64_t number) {
        switch (number) {
        case is_false: return Value(false);
        case is_true: return Value(true);
        case null: return Value();
        default: return {};
        }
    }

    std::string_view rest_;
};

}  // namespace

std::optional<Value> read_cbor(std::string_view bytes) {
    Reader reader(bytes);
    auto value = reader.item(0);
    if (!value || !reader.is_at_end()) return {};
    return value;
}

}  // namespace doctor
