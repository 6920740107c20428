// SPDX-License-Identifier: Apache-2.0
// Row 15: tokens between host layouts that differ as those of engines do, against a plain transfer of the same bytes
// between two layouts of one order. Each transfer is verified once, by checksums of all elements in the same order.
#include "common/block_ids.hpp"
#include "common/pattern.hpp"
#include "common/program.hpp"

#include <numeric>

namespace {

using namespace bench;

constexpr uint64_t layers = 4;

// How one side stores the tokens.
struct side_shape {
    const char *order;
    uint64_t tokens; // of a block
    uint64_t heads;
};

struct difference {
    const char *name;
    side_shape from;
    side_shape to;
};

constexpr difference differences[] = {
    {"NHD to HND", {"L/OBNHC", 16, 8}, {"L/OBHNC", 16, 8}},
    {"HND to NHD", {"L/OBHNC", 16, 8}, {"L/OBNHC", 16, 8}},
    {"packed to separate keys and values", {"L/BHNOC", 16, 8}, {"L/OBNHC", 16, 8}},
    {"separate to packed keys and values", {"L/OBNHC", 16, 8}, {"L/BHNOC", 16, 8}},
    {"4 of 8 heads", {"L/OBNHC", 16, 8}, {"L/OBNHC", 16, 4}},
    {"4 heads to 4 of 8", {"L/OBNHC", 16, 4}, {"L/OBNHC", 16, 8}},
    {"blocks of 16 to 64 tokens", {"L/OBNHC", 16, 8}, {"L/OBNHC", 64, 8}},
    {"blocks of 64 to 16 tokens, HND to NHD", {"L/OBHNC", 64, 8}, {"L/OBNHC", 16, 8}},
};

// The elements of a token are not adjacent on one side, as in llama.cpp's transposed values.
constexpr difference transposed[] = {
    {"NHC to HCN, blocks of 16 tokens", {"L/OBNHC", 16, 8}, {"L/OBHCN", 16, 8}},
    {"HCN to NHC, blocks of 16 tokens", {"L/OBHCN", 16, 8}, {"L/OBNHC", 16, 8}},
    {"NHC to HCN, blocks of 1024 tokens", {"L/OBNHC", 1024, 8}, {"L/OBHCN", 1024, 8}},
    {"HCN to NHC, blocks of 1024 tokens", {"L/OBHCN", 1024, 8}, {"L/OBNHC", 1024, 8}},
};

// Sizes of one head of one token, and of an element.
struct row_shape {
    uint64_t bytes;
    uint64_t element_bytes;
};

// A side with blocks for `tokens` tokens.
kv::layout make_side(const side_shape &shape, uint64_t tokens, const row_shape &row)
{
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = tokens / shape.tokens;
    config.num_layers = layers;
    config.outer_dim = 2;
    config.page_size = shape.tokens;
    config.num_heads = shape.heads;
    config.inner_dim = shape.heads * row.bytes / row.element_bytes;
    config.dtype_width = row.element_bytes;
    config.order = shape.order;
    return kv::make_layout(config);
}

// The blocks of a sequence, scattered over the whole side.
std::vector<uint32_t> table_of(uint64_t blocks, uint32_t factor)
{
    std::vector<uint32_t> ids(blocks);
    uint64_t step = blocks / 3 * factor + 1;
    while (std::gcd(step, blocks) != 1)
        ++step;
    for (uint64_t i = 0; i < blocks; ++i)
        ids[i] = static_cast<uint32_t>(i * step % blocks);
    return ids;
}

// Two sides, and a transfer of all tokens of the heads that both have.
struct exchange {
    kv::layout source;
    kv::layout destination;
    kv::transfer transfer;
    uint64_t bytes;

    exchange(const side_shape &from, const side_shape &to, uint64_t tokens, const row_shape &row)
        : source(make_side(from, tokens, row)), destination(make_side(to, tokens, row)),
          bytes(tokens * layers * 2 * std::min(from.heads, to.heads) * row.bytes)
    {
        const std::vector<uint32_t> here = table_of(tokens / from.tokens, 1);
        const std::vector<uint32_t> there = table_of(tokens / to.tokens, 2);
        const kvmem_block_table tables[] = {{here.data(), here.size(), 0, 1}, {there.data(), there.size(), 0, 1}};
        kv::job wanted = kv::job_of({}, {}, {});
        wanted.run.pairs = nullptr;
        wanted.run.source_table = &tables[0];
        wanted.run.destination_table = &tables[1];
        wanted.run.num_tokens = tokens;
        wanted.transfer.num_heads = std::min(from.heads, to.heads);
        wanted.run.flags = KVMEM_SUBMIT_VERIFY;
        kv::submit_and_wait(kv::prepared(source, destination, wanted));
        wanted.run.flags = 0;
        transfer = kv::prepared(source, destination, wanted);
    }

    samples rates_of(const samples &taken) const { return rates(static_cast<double>(bytes), taken); }
};

// `width` is the parameter that the rows differ in: bytes per row, or bytes per element.
void measure_case(const options &chosen, const difference &shape, const row_shape &row,
                  const parameters::value_type &width, results &found)
{
    const uint64_t unit = std::max({shape.from.tokens, shape.to.tokens, uint64_t(64)});
    const uint64_t heads = std::min(shape.from.heads, shape.to.heads);
    const uint64_t total = chosen.quick ? 16 << 20 : 128 << 20;
    const uint64_t tokens = total / (layers * 2 * heads * row.bytes) / unit * unit;
    const exchange reshaped(shape.from, shape.to, tokens, row);
    const side_shape same = {"L/OBNHC", 16, heads};
    const exchange plain(same, same, tokens, row);
    const std::vector<samples> taken = alternate(
        chosen.rounds(15), {[&] { return time_ns([&] { kv::submit_and_wait(reshaped.transfer); }); },
                            [&] { return time_ns([&] { kv::submit_and_wait(plain.transfer); }); }});
    found.add({"15-reshape",
               {{"difference", shape.name}, width, {"tokens", tokens}},
               reshaped.rates_of(taken[0]),
               "plain transfer of the same bytes",
               plain.rates_of(taken[1]),
               {},
               "GB/s"});
}

void measure(const options &chosen, results &found)
{
    for (const difference &shape : differences)
        for (const uint64_t row_bytes : {64, 128, 256, 512})
            measure_case(chosen, shape, {row_bytes, 2}, {"row_bytes", row_bytes}, found);
    for (const difference &shape : transposed)
        for (const uint64_t element_bytes : {1, 2, 4, 8})
            measure_case(chosen, shape, {256, element_bytes}, {"element_bytes", element_bytes}, found);
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
