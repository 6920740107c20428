// SPDX-License-Identifier: Apache-2.0
// The source of the copy kernels, compiled for the CPU and run thread by thread: random geometries against a copy of unit after
// unit. Every byte of the destination is compared, also those that must not be written.
#include "cuda_as_cpp.h"

#include "warps.h"

namespace by_blocks {
#include "copy.cu"
}
namespace by_rows {
#include "rows.cu"
}

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

index3 threadIdx, blockIdx, gridDim;

namespace {

using kernel = void (*)(const kvmem_copy);

void launch(kernel run, unsigned ctas, const kvmem_copy &asked)
{
    gridDim.x = ctas;
    for (blockIdx.x = 0; blockIdx.x < ctas; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < KVMEM_COPY_THREADS; ++threadIdx.x)
            run(asked);
}

struct random_numbers {
    std::mt19937 generator;
    unsigned between(unsigned least, unsigned most) { return least + generator() % (most - least + 1); }
};

unsigned inverse(unsigned count)
{
    return count == 1 ? 0 : static_cast<unsigned>(((uint64_t{1} << 32) + count - 1) / count);
}

// Two sides in separate memory. On the source the two loops are swapped, with gaps on both sides.
struct geometry {
    kvmem_copy asked{};
    std::vector<kvmem_copy_run> runs;
    std::vector<unsigned char> source, destination;
};

geometry draw(random_numbers &random, bool of_rows)
{
    geometry made;
    kvmem_copy &asked = made.asked;
    const unsigned word = 1u << random.between(0, 4);
    const unsigned words = random.between(1, of_rows ? 64 : 400);
    const unsigned gap = random.between(0, 2) * word;
    const unsigned unit = word * words;
    asked.unit_size = unit;
    asked.num_outers = random.between(1, 9);
    asked.num_inners = of_rows ? random.between(1, 40) : 1;
    asked.num_layers = random.between(1, 3);
    asked.most_blocks = random.between(1, 3);
    const unsigned rows = asked.num_outers * asked.num_inners;
    asked.destination_inner_stride = unit + gap;
    asked.destination_outer_stride = asked.num_inners * asked.destination_inner_stride;
    asked.source_outer_stride = unit + random.between(0, 2) * word;
    asked.source_inner_stride = static_cast<unsigned>(asked.source_outer_stride) * asked.num_outers;
    asked.destination_block_stride = asked.destination_outer_stride * asked.num_outers + gap;
    asked.source_block_stride = uint64_t{asked.source_inner_stride} * asked.num_inners;
    if (of_rows) {
        asked.word_size = word;
        asked.num_words = words;
        asked.words_inverse = inverse(words);
        asked.inners_inverse = inverse(asked.num_inners);
        asked.tile_size = random.between(1, rows);
        asked.tiles = (rows + asked.tile_size - 1) / asked.tile_size;
    } else {
        asked.tile_size = 16 * random.between(1, 64);
        asked.tiles = (unit + asked.tile_size - 1) / asked.tile_size;
    }
    const unsigned num_runs = random.between(1, 4);
    const unsigned pool = num_runs * asked.most_blocks;
    for (unsigned run = 0; run < num_runs; ++run)
        made.runs.push_back({(num_runs - 1 - run) * asked.most_blocks, run * asked.most_blocks,
                             random.between(1, asked.most_blocks), 0});
    asked.num_runs = num_runs;
    const uint64_t source_layer = asked.source_block_stride * pool;
    const uint64_t destination_layer = asked.destination_block_stride * pool;
    made.source.resize(source_layer * asked.num_layers + 32);
    made.destination.assign(destination_layer * asked.num_layers + 32, 0xEE);
    for (unsigned char &byte : made.source)
        byte = static_cast<unsigned char>(random.generator());
    // Rows consist of aligned words; units may start anywhere.
    const auto start = [&](std::vector<unsigned char> &bytes) {
        const auto address = reinterpret_cast<uint64_t>(bytes.data());
        return of_rows ? (address + 15) / 16 * 16 : address + random.between(0, 15);
    };
    const uint64_t from = start(made.source), to = start(made.destination);
    for (unsigned layer = 0; layer < asked.num_layers; ++layer)
        asked.layers[layer] = {from + layer * source_layer, to + layer * destination_layer};
    if (random.between(0, 1) == 0)
        asked.runs = reinterpret_cast<uint64_t>(made.runs.data());
    else
        std::memcpy(asked.layers + asked.num_layers, made.runs.data(), num_runs * sizeof made.runs[0]);
    return made;
}

std::vector<unsigned char> expected(const geometry &made)
{
    const kvmem_copy &asked = made.asked;
    std::vector<unsigned char> bytes = made.destination;
    const auto base = reinterpret_cast<uint64_t>(made.destination.data());
    for (const kvmem_copy_run &run : made.runs)
        for (unsigned block = 0; block < run.length; ++block)
            for (unsigned layer = 0; layer < asked.num_layers; ++layer)
                for (unsigned outer = 0; outer < asked.num_outers; ++outer)
                    for (unsigned inner = 0; inner < asked.num_inners; ++inner) {
                        const uint64_t from = asked.layers[layer].source +
                                              (run.source + block) * asked.source_block_stride +
                                              outer * asked.source_outer_stride + inner * uint64_t{asked.source_inner_stride};
                        const uint64_t to = asked.layers[layer].destination +
                                            (run.destination + block) * asked.destination_block_stride +
                                            outer * asked.destination_outer_stride +
                                            inner * uint64_t{asked.destination_inner_stride};
                        std::memcpy(bytes.data() + (to - base), reinterpret_cast<const void *>(from), asked.unit_size);
                    }
    return bytes;
}

bool moves_every_byte(kernel run, bool of_rows, unsigned seed)
{
    random_numbers random{std::mt19937(seed)};
    geometry made = draw(random, of_rows);
    const std::vector<unsigned char> wanted = expected(made);
    launch(run, random.between(1, 3), made.asked);
    for (size_t index = 0; index < wanted.size(); ++index)
        if (made.destination[index] != wanted[index]) {
            std::printf("FAILED  %s, seed %u: byte %zu is %02x instead of %02x\n", of_rows ? "rows" : "blocks", seed, index,
                        made.destination[index], wanted[index]);
            return false;
        }
    return true;
}

} // namespace

int main(int argc, char **argv)
{
    const unsigned geometries = argc > 1 ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 300;
    unsigned failed = 0;
    for (unsigned seed = 1; seed <= geometries; ++seed) {
        failed += !moves_every_byte(by_blocks::kvmem_copy_blocks, false, seed);
        failed += !moves_every_byte(by_rows::kvmem_copy_rows, true, seed);
    }
    std::printf("%u geometries of each kernel, %u failed\n", geometries, failed);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
