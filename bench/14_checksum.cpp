// SPDX-License-Identifier: Apache-2.0
// Row 14: checksums of scattered blocks in host memory, and the throughput of verified transfers.
#include "common/block_ids.hpp"
#include "common/parallel.hpp"
#include "common/pattern.hpp"
#include "common/program.hpp"
#include "reference/crc32c.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace {

using namespace bench;

constexpr char row_name[] = "14-checksum";
constexpr uint64_t spread = 2; // blocks of a pool per block that is read
constexpr unsigned max_threads = 16; // of kvmem and of the ceiling

using block_list = std::vector<const unsigned char *>;

block_list places_of(const host_view &view, const std::vector<uint32_t> &ids)
{
    block_list places;
    for (uint32_t id : ids)
        places.push_back(view.piece(id, 0, 0));
    return places;
}

unsigned threads() { return std::clamp(std::thread::hardware_concurrency(), 1u, max_threads); }

// The ceiling: reads every word, and does little with it.
void read_words(const block_list &blocks, uint64_t size)
{
    in_parts(blocks.size(), threads(), [&](size_t first, size_t last) {
        uint64_t sum = 0;
        for (size_t index = first; index < last; ++index) {
            const auto *words = reinterpret_cast<const uint64_t *>(blocks[index]);
            for (uint64_t word = 0; word < size / sizeof *words; ++word)
                sum += words[word];
        }
        asm volatile("" : : "r"(sum));
    });
}

// Two pools of blocks, and which of them are read or moved.
struct pools {
    uint64_t block_bytes;
    kv::layout source;
    kv::layout destination;
    kv::pairs pairs;
    std::vector<uint32_t> sources;

    pools(const options &chosen, uint64_t size) : block_bytes(size)
    {
        const auto count = static_cast<uint32_t>((chosen.quick ? 16 << 20 : 256 << 20) / size);
        const kvmem_layout_config config = whole_blocks(size, count * spread);
        source = kv::make_layout(config);
        destination = kv::make_layout(config);
        pairs = scattered_pairs(count, count * spread);
        for (const kvmem_block_pair &pair : pairs)
            sources.push_back(pair.source);
        host_view(source).fill();
    }

    double bytes() const { return static_cast<double>(block_bytes * pairs.size()); }

    parameters described(const char *what, const char *method) const
    {
        return {{"what", what}, {"way", method}, {"block_bytes", block_bytes}, {"blocks", pairs.size()}};
    }
};

// Times the computation, then compares the checksums.
template <typename Compute> candidate compared(const std::vector<uint32_t> &expected, Compute compute)
{
    return [&expected, compute] {
        std::vector<uint32_t> checksums;
        const double taken = time_ns([&] { checksums = compute(); });
        if (checksums != expected)
            throw std::runtime_error("the checksums differ from those of the CPU's instruction");
        return taken;
    };
}

void measure_checksums(const options &chosen, const pools &blocks, results &found)
{
    const block_list places = places_of(host_view(blocks.source), blocks.sources);
    const uint64_t size = blocks.block_bytes;
    const std::vector<uint32_t> expected = crc32c::of_blocks(places, size);
    const std::vector<samples> taken = alternate(chosen.rounds(15), {
        compared(expected, [&] { return kv::checksums_of(blocks.source, blocks.sources); }),
        compared(expected, [&] { return crc32c::of_blocks(places, size); }),
        [&] { return time_ns([&] { read_words(places, size); }); },
    });
    found.add({row_name,
               blocks.described("checksums", "kvmem_layout_checksum"),
               rates(blocks.bytes(), taken[0]),
               "the CPU's instruction, 1 thread",
               rates(blocks.bytes(), taken[1]),
               rates(blocks.bytes(), taken[2]),
               "GB/s"});
}

void measure_transfers(const options &chosen, const pools &blocks, results &found)
{
    const std::vector<uint32_t> checksums = kv::checksums_of(blocks.source, blocks.sources);
    const auto prepare = [&](uint64_t flags, const uint32_t *given) {
        return kv::make_transfer(blocks.source, blocks.destination, blocks.pairs, {},
                                 {KVMEM_COMPUTE_MAY_RUN, 0, 0, 0, flags, given});
    };
    const kv::transfer against_source = prepare(KVMEM_SUBMIT_VERIFY, nullptr);
    const kv::transfer against_given = prepare(0, checksums.data());
    const kv::transfer bare = prepare(0, nullptr);
    const host_view to(blocks.destination);
    std::vector<candidate> candidates;
    for (const kv::transfer *each : {&against_source, &against_given, &bare})
        candidates.push_back(checked(to, blocks.pairs, [each] { kv::submit_and_wait(*each); }));
    const std::vector<samples> taken = alternate(chosen.rounds(15), candidates);
    const char *methods[] = {"verified against the source", "verified against given checksums"};
    for (size_t method = 0; method < 2; ++method)
        found.add({row_name,
                   blocks.described("transfer, host to host", methods[method]),
                   rates(blocks.bytes(), taken[method]),
                   "not verified",
                   rates(blocks.bytes(), taken[2]),
                   {},
                   "GB/s"});
}

void measure(const options &chosen, results &found)
{
    if (!crc32c::is_supported())
        std::printf("this CPU has no instruction for CRC32C: only transfers are measured\n");
    for (uint64_t block_bytes : {4 << 10, 16 << 10, 256 << 10, 1 << 20}) {
        const pools blocks(chosen, block_bytes);
        if (crc32c::is_supported())
            measure_checksums(chosen, blocks, found);
        measure_transfers(chosen, blocks, found);
    }
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
