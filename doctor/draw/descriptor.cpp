// SPDX-License-Identifier: Apache-2.0
#include "descriptor.hpp"

#include "cbor.hpp"

#include <array>

namespace doctor {

namespace {

constexpr std::string_view magic = "KVMEMLAY";
constexpr std::size_t header_size = 20;
constexpr std::uint64_t version_of_one = 4, version_of_parts = 5;

std::uint64_t little_endian(std::string_view bytes) {
    std::uint64_t number = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
    return number;
}

std::uint32_t crc32c(std::string_view first, std::string_view second) {
    std::uint32_t crc = ~0U;
    for (const std::string_view bytes : {first, second}) {
        for (const char byte : bytes) {
            crc ^= static_cast<unsigned char>(byte);
            for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78U : 0);
        }
    }
    return ~crc;
}

const Value &member(const Value &object, std::string_view name) {
    const Value *const found = object.find(name);
    if (!found) throw DescriptorError("the layout descriptor lacks the field " + std::string(name));
    return *found;
}

std::uint64_t number(const Value &value, std::string_view name) {
    const auto *const number = value.as<std::uint64_t>();
    if (!number) throw DescriptorError("the field " + std::string(name) + " of the layout descriptor is no number");
    return *number;
}

struct Payload {
    std::uint64_t version;
    Value fields;
};

Payload open(std::string_view bytes) {
    if (bytes.substr(0, magic.size()) != magic || bytes.size() < header_size) {
        throw DescriptorError("the bytes are not a layout descriptor; kvmem_layout_export writes one");
    }
    const auto payload = bytes.substr(header_size);
    const bool is_whole = little_endian(bytes.substr(12, 4)) == payload.size();
    if (!is_whole || little_endian(bytes.substr(16, 4)) != crc32c(bytes.substr(0, 16), payload)) {
        throw DescriptorError("the layout descriptor is damaged: its " +
                              std::string(is_whole ? "checksum" : "length") + " does not match");
    }
    const std::uint64_t version = little_endian(bytes.substr(8, 2));
    if (version < version_of_one || version > version_of_parts || little_endian(bytes.substr(10, 2)) != 0) {
        throw DescriptorError("the layout descriptor has version " + std::to_string(version) +
                              "; this program reads versions " + std::to_string(version_of_one) + " and " +
                              std::to_string(version_of_parts));
    }
    auto fields = read_cbor(payload);
    if (!fields) throw DescriptorError("the fields of the layout descriptor are damaged");
    return {version, *std::move(fields)};
}

void set_order(kvmem::LayoutConfig &config, const Value &arrangement) {
    config.order = std::string(member(arrangement, "order").text());
    static constexpr std::array fields = {
        &kvmem::LayoutConfig::block_stride, &kvmem::LayoutConfig::layer_stride, &kvmem::LayoutConfig::outer_stride,
        &kvmem::LayoutConfig::token_stride, &kvmem::LayoutConfig::head_stride,  &kvmem::LayoutConfig::element_stride};
    const auto *const strides = member(arrangement, "strides").as<Value::Array>();
    if (!strides || strides->size() != fields.size()) {
        throw DescriptorError("the field strides of the layout descriptor has no stride for each axis");
    }
    for (std::size_t i = 0; i < fields.size(); ++i) config.*fields[i] = number((*strides)[i], "strides");
}

kvmem::LayoutConfig shape_of(const Value &payload) {
    const Value &dimensions = member(payload, "dimensions");
    const auto get = [&](std::string_view name) { return number(member(dimensions, name), name); };
    kvmem::LayoutConfig config;
    config.num_blocks = get("num_blocks");
    config.num_layers = get("num_layers");
    config.outer_dim = get("outer_dim");
    config.page_size = get("page_size");
    config.inner_dim = get("inner_dim");
    config.dtype_width = get("dtype_width");
    config.alignment = get("alignment");
    // Null if unknown.
    if (member(dimensions, "num_heads").as<std::uint64_t>()) config.num_heads = get("num_heads");
    if (const Value *const identity = dimensions.find("identity")) config.identity = std::string(identity->text());
    set_order(config, member(payload, "arrangement"));
    return config;
}

}  // namespace

std::vector<NamedShape> read_descriptor(std::string_view bytes) {
    const Payload payload = open(bytes);
    if (payload.version == version_of_one) return {{"", shape_of(payload.fields)}};
    const auto *const parts = member(payload.fields, "parts").as<Value::Array>();
    if (!parts || parts->empty()) throw DescriptorError("the layout descriptor has no parts");
    std::vector<NamedShape> shapes;
    for (const Value &part : *parts) {
        const Payload of_part = open(member(part, "descriptor").text());
        if (of_part.version != version_of_one) throw DescriptorError("a part of the layout descriptor has parts itself");
        shapes.push_back({std::string(member(part, "name").text()), shape_of(of_part.fields)});
    }
    return shapes;
}

}  // namespace doctor
