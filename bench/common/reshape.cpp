// SPDX-License-Identifier: Apache-2.0
// The differences, and the bench's own formula for the addresses of elements.
#include "common/reshape.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace bench {
namespace {

uint64_t blocks_of(const cache_shape &shape, uint64_t tokens) { return tokens / shape.tokens; }

} // namespace

kvmem_layout_config cache_shape::config(uint64_t all_tokens, row_shape row) const
{
    kvmem_layout_config made{};
    made.struct_size = sizeof made;
    made.num_blocks = all_tokens / tokens;
    made.num_layers = reshape_layers;
    made.outer_dim = reshape_outers;
    made.page_size = tokens;
    made.num_heads = heads;
    made.inner_dim = heads * row.elements();
    made.dtype_width = row.element_bytes;
    made.order = order;
    return made;
}

uint64_t cache_shape::bytes(uint64_t all_tokens, row_shape row) const
{
    return all_tokens * reshape_layers * reshape_outers * heads * row.bytes;
}

uint64_t cache_shape::offset(const std::vector<uint32_t> &table, row_shape row, element_index index) const
{
    uint64_t at = 0;
    for (const char *axis = order; *axis != '\0'; ++axis)
        switch (*axis) {
        case 'B': at = at * table.size() + table[index.token / tokens]; break;
        case 'L': at = at * reshape_layers + index.layer; break;
        case 'O': at = at * reshape_outers + index.outer; break;
        case 'N': at = at * tokens + index.token % tokens; break;
        case 'H': at = at * heads + index.head; break;
        case 'C': at = at * row.elements() + index.element; break;
        default: throw std::logic_error("an order of the bench has an axis without a formula");
        }
    return at * row.element_bytes;
}

uint64_t cache_difference::tokens_for(uint64_t bytes_wanted, row_shape row) const
{
    const uint64_t unit = std::max({from.tokens, to.tokens, uint64_t{64}});
    return bytes_wanted / bytes(1, row) / unit * unit;
}

const std::vector<cache_difference> &cache_differences()
{
    static const std::vector<cache_difference> all = {
        {"NHD to HND", {"LOBNHC", 16, 8}, {"LOBHNC", 16, 8}},
        {"HND to NHD", {"LOBHNC", 16, 8}, {"LOBNHC", 16, 8}},
        {"packed to separate keys and values", {"LBHNOC", 16, 8}, {"LOBNHC", 16, 8}},
        {"separate to packed keys and values", {"LOBNHC", 16, 8}, {"LBHNOC", 16, 8}},
        {"1 of 8 heads", {"LOBNHC", 16, 8}, {"LOBNHC", 16, 1}},
        {"4 of 8 heads", {"LOBNHC", 16, 8}, {"LOBNHC", 16, 4}},
        {"4 heads to 4 of 8", {"LOBNHC", 16, 4}, {"LOBNHC", 16, 8}},
        {"blocks of 64 to 16 tokens, HND to NHD", {"LOBHNC", 64, 8}, {"LOBNHC", 16, 8}},
        {"fully contiguous HND to NHD by layer", {"BLOHNC", 16, 8}, {"LOBNHC", 16, 8}},
    };
    return all;
}

const std::vector<cache_difference> &transposed_differences()
{
    static const std::vector<cache_difference> all = {
        {"NHC to HCN, blocks of 16 tokens", {"LOBNHC", 16, 8}, {"LOBHCN", 16, 8}},
        {"HCN to NHC, blocks of 16 tokens", {"LOBHCN", 16, 8}, {"LOBNHC", 16, 8}},
        {"NHC to HCN, blocks of 64 tokens", {"LOBNHC", 64, 8}, {"LOBHCN", 64, 8}},
        {"HCN to NHC, blocks of 64 tokens", {"LOBHCN", 64, 8}, {"LOBNHC", 64, 8}},
        {"BNHC to HCBN, blocks of 64 tokens", {"LOBNHC", 64, 8}, {"LOHCBN", 64, 8}},
        {"HCBN to BNHC, blocks of 64 tokens", {"LOHCBN", 64, 8}, {"LOBNHC", 64, 8}},
        {"HCBN to BHNC, blocks of 16 tokens", {"LOHCBN", 16, 8}, {"LOBHNC", 16, 8}},
    };
    return all;
}

cache_difference plain_like(const cache_difference &shape)
{
    const cache_shape same = {"LOBNHC", 16, shape.heads()};
    return {"none", same, same};
}

std::vector<uint32_t> scattered_table(uint64_t blocks, uint32_t factor)
{
    std::vector<uint32_t> ids(blocks);
    uint64_t step = blocks / 3 * factor + 1;
    while (std::gcd(step, blocks) != 1)
        ++step;
    for (uint64_t index = 0; index < blocks; ++index)
        ids[index] = static_cast<uint32_t>(index * step % blocks);
    return ids;
}

cache_pair::cache_pair(const cache_difference &difference, row_shape of_row, uint64_t all_tokens,
                       const arena &source_arena, const arena &destination_arena)
    : shape(difference), row(of_row), tokens(all_tokens), source(source_arena),
      destination(destination_arena), source_table(scattered_table(blocks_of(shape.from, tokens), 1)),
      destination_table(scattered_table(blocks_of(shape.to, tokens), 2))
{
    uint64_t used = 0;
    from = source.build(shape.from.config(tokens, row), used);
    to = destination.build(shape.to.config(tokens, row), used);
}

kv::transfer cache_pair::transfer(kv::preferences preferred) const
{
    const kvmem_block_table tables[] = {{source_table.data(), source_table.size(), 0, 1},
                                        {destination_table.data(), destination_table.size(), 0, 1}};
    kv::job wanted = kv::job_of({}, {}, preferred);
    wanted.run.pairs = nullptr;
    wanted.run.source_table = &tables[0];
    wanted.run.destination_table = &tables[1];
    wanted.run.num_tokens = tokens;
    wanted.transfer.num_heads = shape.heads();
    return kv::prepared(from, to, wanted);
}

cuda::copy_list cache_pair::spans() const
{
    cuda::copy_list list;
    for (uint64_t layer = 0; layer < reshape_layers; ++layer)
        for (uint64_t outer = 0; outer < reshape_outers; ++outer)
            for (uint64_t token = 0; token < tokens; ++token)
                for (uint64_t head = 0; head < shape.heads(); ++head) {
                    const element_index first = {layer, outer, token, head};
                    list.append(destination.base() + destination_offset(first), source.base() + source_offset(first),
                                row.bytes);
                }
    return list;
}

} // namespace bench
