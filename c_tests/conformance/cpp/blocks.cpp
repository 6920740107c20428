// SPDX-License-Identifier: Apache-2.0
// Calls of the bytes of blocks.
#include "calls.hpp"

namespace {

// Visits each element of a block in the order of layers, outer slots, tokens, heads and elements.
void visit(const Step &step, World &world, const std::function<void(std::byte *, std::size_t)> &element) {
    const auto &layout = world.get<kvmem::Layout>(step.name());
    const auto info = layout.info();
    const std::uint64_t block = step.number("block"), heads = info.num_heads ? info.num_heads : 1;
    if (block >= info.num_blocks) throw Failure("there is no such block");
    for (std::uint64_t l = 0; l < info.num_layers; ++l)
        for (std::uint64_t o = 0; o < info.outer_dim; ++o)
            for (std::uint64_t n = 0; n < info.page_size; ++n)
                for (std::uint64_t h = 0; h < heads; ++h)
                    for (std::uint64_t c = 0; c < info.inner_dim / heads; ++c) {
                        const std::uint64_t base =
                            info.bases[l * info.layer_step + o * info.outer_step + n * info.token_step + h * info.head_step];
                        const std::uint64_t address = base + block * info.block_stride + l * info.layer_stride +
                                                      o * info.outer_stride + n * info.token_stride +
                                                      h * info.head_stride + c * info.element_stride;
                        element(reinterpret_cast<std::byte *>(address), info.dtype_width);
                    }
}

std::byte pattern(std::uint64_t seed, std::uint64_t i) {
    return static_cast<std::byte>((31 * seed + 7 * i + 13 * (i / 256)) % 256);
}

Results fill(const Step &step, World &world) {
    const std::uint64_t seed = step.number("seed");
    std::uint64_t i = 0;
    visit(step, world, [&](std::byte *bytes, std::size_t width) {
        for (std::size_t k = 0; k < width; ++k) bytes[k] = pattern(seed, i++);
    });
    return {};
}

Results expect(const Step &step, World &world) {
    std::vector<std::byte> found;
    visit(step, world, [&](std::byte *bytes, std::size_t width) { found.insert(found.end(), bytes, bytes + width); });
    std::vector<std::byte> expected;
    if (step.has("bytes")) {
        expected = parse_bytes(step.text("bytes"));
    } else {
        const std::uint64_t seed = parse_number(step.text("seed"));
        for (std::size_t i = 0; i < found.size(); ++i) expected.push_back(pattern(seed, i));
    }
    if (expected.size() != found.size()) {
        throw Failure("the block has " + number(found.size()) + " bytes, not " + number(expected.size()));
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (found[i] == expected[i]) continue;
        throw Failure("byte " + number(i) + " of the block: expected " + number(raw(expected[i])) + ", found " +
                      number(raw(found[i])));
    }
    return {};
}

}  // namespace

Calls block_calls() {
    return {
        {"fill", fill},
        {"expect", expect},
    };
}
