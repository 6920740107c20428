// SPDX-License-Identifier: Apache-2.0
// Row 10: blocks between two host layouts, against memcpy of the same bytes.
#include "common/block_ids.hpp"
#include "common/pattern.hpp"
#include "common/program.hpp"

#include <cstring>
#include <thread>

namespace {

using namespace bench;

constexpr uint64_t layers = 4;
constexpr uint64_t outers = 2;

struct side_kind {
    const char *name;
    const char *order;
};

constexpr side_kind contiguous = {"fully contiguous", KVMEM_ORDER_FULLY_CONTIGUOUS};
constexpr side_kind separate = {"layer separate", KVMEM_ORDER_LAYER_SEPARATE};
constexpr side_kind outer_first = {"layer separate, outer first", KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST};

kv::layout make_side(const side_kind &chosen, uint64_t num_blocks, uint64_t block_bytes)
{
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = num_blocks;
    config.num_layers = layers;
    config.outer_dim = outers;
    config.page_size = 16;
    config.inner_dim = block_bytes / (layers * outers * 16 * 2);
    config.dtype_width = 2;
    config.order = chosen.order;
    return kv::make_layout(config);
}

struct piece {
    unsigned char *destination;
    const unsigned char *source;
    uint64_t size;
};

// The pieces of the pairs in the order of the pairs, each as long as it is contiguous on both sides.
std::vector<piece> pieces_of(const host_view &from, const host_view &to, const kv::pairs &pairs)
{
    std::vector<piece> pieces;
    for (const kvmem_block_pair &pair : pairs)
        for (uint64_t layer = 0; layer < layers; ++layer)
            for (uint64_t outer = 0; outer < outers; ++outer) {
                const piece next = {to.piece(pair.destination, layer, outer),
                                    from.piece(pair.source, layer, outer), from.piece_size()};
                piece *last = pieces.empty() ? nullptr : &pieces.back();
                if (last != nullptr && last->destination + last->size == next.destination &&
                    last->source + last->size == next.source)
                    last->size += next.size;
                else
                    pieces.push_back(next);
            }
    return pieces;
}

void copy(const std::vector<piece> &pieces, size_t first, size_t last)
{
    for (size_t index = first; index < last; ++index)
        std::memcpy(pieces[index].destination, pieces[index].source, pieces[index].size);
}

void copy_on_two_threads(const std::vector<piece> &pieces)
{
    std::thread other([&] { copy(pieces, 0, pieces.size() / 2); });
    copy(pieces, pieces.size() / 2, pieces.size());
    other.join();
}

struct copy_case {
    side_kind from;
    side_kind to;
    uint64_t block_bytes;
};

void measure_case(const options &chosen, const copy_case &shape, results &found)
{
    const uint64_t total = chosen.quick ? 16 << 20 : 128 << 20;
    const auto pool = static_cast<uint32_t>(total / shape.block_bytes);
    const kv::layout source = make_side(shape.from, pool, shape.block_bytes);
    const kv::layout destination = make_side(shape.to, pool, shape.block_bytes);
    const host_view from(source);
    const host_view to(destination);
    from.fill();
    const kv::pairs pairs = scattered_pairs(pool * 3 / 4, pool);
    const uint64_t bytes = pairs.size() * shape.block_bytes;
    const std::vector<piece> pieces = pieces_of(from, to, pairs);
    const kv::transfer prepared = kv::make_transfer(source, destination, pairs);
    std::vector<unsigned char> flat_source(bytes, 1);
    std::vector<unsigned char> flat_destination(bytes, 2);

    const std::vector<candidate> candidates = {
        checked(to, pairs, [&] { kv::submit_and_wait(prepared); }),
        checked(to, pairs, [&] { kv::submit_and_wait(kv::make_transfer(source, destination, pairs)); }),
        checked(to, pairs, [&] { copy(pieces, 0, pieces.size()); }),
        checked(to, pairs, [&] { copy_on_two_threads(pieces); }),
        [&] { return time_ns([&] { std::memcpy(flat_destination.data(), flat_source.data(), bytes); }); },
    };
    const std::vector<samples> taken = alternate(chosen.rounds(15), candidates);

    const samples ceiling = rates(static_cast<double>(bytes), taken[4]);
    const char *timed[] = {"submit, wait", "create, submit, wait"};
    const char *reference_names[] = {"memcpy of the same pieces, 1 thread",
                                     "memcpy of the same pieces, 2 threads"};
    for (size_t ours = 0; ours < 2; ++ours)
        for (size_t reference = 0; reference < 2; ++reference)
            found.add({"10-host-copy",
                       {{"from", shape.from.name},
                        {"to", shape.to.name},
                        {"block_bytes", shape.block_bytes},
                        {"piece_bytes", pieces.front().size},
                        {"blocks", pairs.size()},
                        {"timed", timed[ours]}},
                       rates(static_cast<double>(bytes), taken[ours]),
                       reference_names[reference],
                       rates(static_cast<double>(bytes), taken[2 + reference]),
                       ceiling,
                       "GB/s"});
}

void measure(const options &chosen, results &found)
{
    const std::pair<side_kind, side_kind> kinds[] = {
        {contiguous, separate},
        {separate, contiguous},
        {contiguous, contiguous},
        {separate, separate},
        {separate, outer_first},
    };
    for (const auto &[from, to] : kinds)
        for (uint64_t block_bytes = 4096; block_bytes <= 4 << 20; block_bytes *= 4)
            measure_case(chosen, {from, to, block_bytes}, found);
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
