// SPDX-License-Identifier: Apache-2.0
// Row 14 on a GPU: checksums of its blocks against copying them to host memory and computing there, and the throughput
// of verified transfers.
#include "common/block_ids.hpp"
#include "common/gpu.hpp"
#include "common/methods.hpp"
#include "common/points.hpp"
#include "reference/crc32c.hpp"

namespace {

using namespace bench;

constexpr int device = 0;
constexpr char row_name[] = "14-gpu-checksum";

// The memory of all points.
struct memories {
    arena first;
    arena second;
    arena host;
    arena mirror;
    explicit memories(uint64_t size)
        : first(place::device, device, size), second(place::device, device, size),
          host(place::host, device, size), mirror(place::host, device, size)
    {}
};

// All blocks of a pool, in random order, so that one large copy moves the same bytes.
struct shape {
    uint64_t block_bytes;
    uint32_t blocks;
    uint64_t bytes() const { return block_bytes * blocks; }
    kvmem_layout_config config() const { return whole_blocks(block_bytes, blocks); }
    parameters described(const char *what) const
    {
        return {{"what", what},
                {"gpu", gpu_description(device)},
                {"block_bytes", block_bytes},
                {"blocks", blocks}};
    }
};

// Checksums by the CPU's instruction, of the mirror that the side was filled from.
std::vector<uint32_t> expected_of(const side &filled, const std::vector<uint32_t> &ids)
{
    std::vector<const unsigned char *> places;
    for (uint32_t id : ids)
        places.push_back(filled.view().piece(id, 0, 0));
    return crc32c::of_blocks(places, filled.view().block_stride());
}

template <typename Compute> double time_compared(const std::vector<uint32_t> &expected, Compute compute)
{
    std::vector<uint32_t> checksums;
    const double taken = time_ns([&] { checksums = compute(); });
    if (checksums != expected)
        throw std::runtime_error("the checksums differ from those of the CPU's instruction");
    return taken;
}

void measure_checksums(const options &chosen, const memories &memory, const shape &of, results &found)
{
    const side blocks(memory.first, memory.mirror, of.config());
    const side copies(memory.host, memory.mirror, of.config());
    std::mt19937 random(14);
    const std::vector<uint32_t> ids = scattered_ids(of.blocks, of.blocks, 1, random);
    const cuda::own_stream stream;
    const auto copy = [&](uint64_t to) {
        cuda::copy_whole(to, blocks.base(), of.bytes(), stream);
        stream.wait();
    };
    blocks.fill();
    const std::vector<uint32_t> expected = expected_of(blocks, ids);
    const std::vector<samples> taken = alternate(chosen.rounds(9), {
        [&] { return time_compared(expected, [&] { return kv::checksums_of(blocks.layout(), ids); }); },
        [&] {
            copies.wipe_first(of.bytes());
            return time_compared(expected, [&] {
                copy(copies.base());
                return kv::checksums_of(copies.layout(), ids);
            });
        },
        [&] { return time_ns([&] { copy(memory.second.base()); }); },
    });
    parameters all = of.described("checksums");
    all.emplace_back("way", "kvmem_layout_checksum");
    const auto bytes = static_cast<double>(of.bytes());
    found.add({row_name, all, rates(bytes, taken[0]), "copied to the host, checksums there",
               rates(bytes, taken[1]), rates(bytes, taken[2]), "GB/s"});
}

move_method submitted(bench::role role, const std::string &name, const moved_blocks &moved, uint64_t flags,
                   const uint32_t *checksums)
{
    const auto transfer = std::make_shared<kv::transfer>(
        kv::make_transfer(moved.from.layout(), moved.to.layout(), moved.pairs, {},
                          {KVMEM_COMPUTE_IDLE, 0, 0, 0, flags, checksums}));
    return {role,
            name,
            [transfer] { kv::submit(*transfer); },
            {},
            nullptr,
            [transfer] { kv::wait(*transfer); },
            [transfer] { return kv::path_of(*transfer); }};
}

void measure_transfer(const options &chosen, const char *what, const side &from, const side &to,
                      const shape &of, results &found)
{
    from.fill();
    const kv::pairs pairs = scattered_pairs(of.blocks, of.blocks);
    std::vector<uint32_t> sources;
    for (const kvmem_block_pair &pair : pairs)
        sources.push_back(pair.source);
    const std::vector<uint32_t> given = kv::checksums_of(from.layout(), sources);
    const moved_blocks moved = {from, to, pairs};
    const std::vector<move_method> methods = {
        submitted(role::ours, "verified against the source", moved, KVMEM_SUBMIT_VERIFY, nullptr),
        submitted(role::ours, "verified against given checksums", moved, 0, given.data()),
        submitted(role::reference, "not verified", moved, 0, nullptr),
        one_large_copy(moved, of.bytes()),
    };
    const checked_move checks = {of.bytes(), [&] { to.wipe(pairs); }, [&] { to.verify(pairs); },
                                 [&] { to.wipe_first(of.bytes()); }};
    const std::vector<move_times> times = alternate_moves(chosen.rounds(5), checks, methods);
    add_move_rows(found, row_name, of.described(what), of.bytes(), methods, times);
}

void measure_shape(const options &chosen, const memories &memory, const shape &of, points &grid,
                   results &found)
{
    const std::string title = std::to_string(of.block_bytes >> 10) + " KiB";
    grid.measure("checksums, " + title, [&] { measure_checksums(chosen, memory, of, found); });
    grid.measure("H2D, " + title, [&] {
        const side host(memory.host, memory.mirror, of.config());
        const side gpu(memory.first, memory.mirror, of.config());
        measure_transfer(chosen, "transfer, H2D", host, gpu, of, found);
    });
    grid.measure("D2H, " + title, [&] {
        const side host(memory.host, memory.mirror, of.config());
        const side gpu(memory.first, memory.mirror, of.config());
        measure_transfer(chosen, "transfer, D2H", gpu, host, of, found);
    });
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const uint64_t size = arena_size(chosen.quick ? 8 << 20 : uint64_t{1} << 30);
    const memories memory(size);
    points grid(chosen);
    for (uint64_t block_bytes : {4 << 10, 16 << 10, 256 << 10, 1 << 20})
        measure_shape(chosen, memory, {block_bytes, static_cast<uint32_t>(size / block_bytes)}, grid, found);
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
