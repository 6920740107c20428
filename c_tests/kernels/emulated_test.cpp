// SPDX-License-Identifier: Apache-2.0
// The source of the copy kernels, compiled for the CPU and run thread by thread: random geometries against a copy of unit after
// unit. Every byte of the destination is compared, also those that must not be written.
#include "cuda_as_cpp.h"
#include "threads.h"

#include "matrices.h"

namespace by_blocks {
#include "copy.cu"
}
namespace by_rows {
#include "rows.cu"
}
namespace transposing {
#include "transpose.cu"
}
namespace in_vectors {
#include "vectors.cu"
}

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

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
    asked.max_blocks = random.between(1, 3);
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
    const unsigned pool = num_runs * asked.max_blocks;
    for (unsigned run = 0; run < num_runs; ++run)
        made.runs.push_back({(num_runs - 1 - run) * asked.max_blocks, run * asked.max_blocks,
                             random.between(1, asked.max_blocks), 0});
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

// Matrices of elements, `tight` on one or both sides, with gaps elsewhere. Blocks may continue the rows or the columns. Words have
// four bytes, or those of vectors.
geometry draw_transposed(random_numbers &random, bool of_vectors)
{
    geometry made;
    kvmem_copy &asked = made.asked;
    const unsigned word_size = of_vectors ? 16 : 4;
    const unsigned size = 1u << random.between(0, of_vectors ? 3 : 4), in_word = size < word_size ? word_size / size : 1;
    const unsigned word = size * in_word;
    const bool is_tight = of_vectors || random.between(0, 3) != 0;
    const bool is_whole = of_vectors || random.between(0, 1) == 0; // whole words are possible
    const unsigned multiple = is_whole ? in_word : 1, grain = is_whole ? word : size;
    asked.unit_size = size;
    asked.word_size = of_vectors ? word : size;
    asked.num_outers = random.between(1, 3);
    asked.num_layers = random.between(1, 2);
    asked.max_blocks = random.between(1, 3);
    asked.are_joined = asked.max_blocks == 1 ? 0 : random.between(0, 2);
    asked.num_inners = multiple * random.between(1, 70 / multiple);
    asked.num_columns = multiple * random.between(1, 70 / multiple);
    const unsigned pool = 2 * asked.max_blocks;
    const bool joins_rows = asked.are_joined == KVMEM_JOINED_ROWS, joins_columns = asked.are_joined == KVMEM_JOINED_COLUMNS;
    const unsigned rows = asked.num_inners * (joins_rows ? pool : 1);
    const unsigned columns = asked.num_columns * (joins_columns ? pool : 1);
    const auto up = [&](uint64_t bytes) { return (bytes + grain - 1) / grain * grain; };
    asked.source_column_stride = is_tight ? size : 2 * size;
    asked.source_inner_stride = static_cast<unsigned>(up(columns * asked.source_column_stride)) + grain * random.between(0, 2);
    asked.destination_inner_stride = is_tight ? size : 3 * size;
    asked.destination_column_stride = static_cast<unsigned>(up(rows * asked.destination_inner_stride)) + grain * random.between(0, 2);
    asked.source_outer_stride = uint64_t{asked.source_inner_stride} * rows + grain * random.between(0, 2);
    asked.destination_outer_stride = uint64_t{asked.destination_column_stride} * columns + grain * random.between(0, 2);
    asked.source_block_stride = joins_rows      ? uint64_t{asked.source_inner_stride} * asked.num_inners
                                : joins_columns ? uint64_t{asked.source_column_stride} * asked.num_columns
                                                : asked.source_outer_stride * asked.num_outers + grain;
    asked.destination_block_stride = joins_rows      ? uint64_t{asked.destination_inner_stride} * asked.num_inners
                                     : joins_columns ? uint64_t{asked.destination_column_stride} * asked.num_columns
                                                     : asked.destination_outer_stride * asked.num_outers + grain;
    asked.warps_shift = random.between(0, 4);
    const unsigned elements = (2048u << asked.warps_shift) / size;
    unsigned most = 0;
    while (elements >> (most + 1) >= in_word)
        ++most;
    unsigned least = 0;
    while (1u << least < in_word)
        ++least;
    asked.columns_shift = random.between(least, most);
    asked.rows_shift = 0;
    while (elements >> (asked.columns_shift + asked.rows_shift) > 1)
        ++asked.rows_shift;
    const unsigned all_rows = asked.num_inners * (joins_rows ? asked.max_blocks : 1);
    const unsigned all_columns = asked.num_columns * (joins_columns ? asked.max_blocks : 1);
    asked.row_tiles = ((all_rows - 1) >> asked.rows_shift) + 1;
    asked.column_tiles = ((all_columns - 1) >> asked.columns_shift) + 1;
    asked.tiles = asked.num_outers * asked.row_tiles * asked.column_tiles;
    asked.is_source_wide = asked.is_destination_wide = is_tight && is_whole;
    for (unsigned run = 0; run < 2; ++run)
        made.runs.push_back({(1 - run) * asked.max_blocks, run * asked.max_blocks, random.between(1, asked.max_blocks), 0});
    asked.num_runs = 2;
    const uint64_t source_layer = asked.source_outer_stride * asked.num_outers + asked.source_block_stride * pool;
    const uint64_t destination_layer = asked.destination_outer_stride * asked.num_outers + asked.destination_block_stride * pool;
    made.source.resize(source_layer * asked.num_layers + 64);
    made.destination.assign(destination_layer * asked.num_layers + 64, 0xEE);
    for (unsigned char &byte : made.source)
        byte = static_cast<unsigned char>(random.generator());
    const auto start = [&](std::vector<unsigned char> &bytes) {
        return (reinterpret_cast<uint64_t>(bytes.data()) + 15) / 16 * 16 + grain * random.between(0, 3);
    };
    const uint64_t from = start(made.source), to = start(made.destination);
    for (unsigned layer = 0; layer < asked.num_layers; ++layer)
        asked.layers[layer] = {from + layer * (source_layer / 16 * 16), to + layer * (destination_layer / 16 * 16)};
    if (random.between(0, 1) == 0)
        asked.runs = reinterpret_cast<uint64_t>(made.runs.data());
    else
        std::memcpy(asked.layers + asked.num_layers, made.runs.data(), made.runs.size() * sizeof made.runs[0]);
    return made;
}

// Copies the units of a block in a layer.
void copy_block(const kvmem_copy &asked, uint64_t from, uint64_t to, unsigned char *bytes)
{
    const unsigned inners = asked.num_inners > 0 ? asked.num_inners : 1;
    const unsigned columns = asked.num_columns > 0 ? asked.num_columns : 1;
    for (unsigned outer = 0; outer < asked.num_outers; ++outer)
        for (unsigned inner = 0; inner < inners; ++inner)
            for (unsigned column = 0; column < columns; ++column) {
                const uint64_t source = from + outer * asked.source_outer_stride + inner * uint64_t{asked.source_inner_stride} +
                                        column * uint64_t{asked.source_column_stride};
                const uint64_t destination = to + outer * asked.destination_outer_stride +
                                             inner * uint64_t{asked.destination_inner_stride} +
                                             column * uint64_t{asked.destination_column_stride};
                std::memcpy(bytes + destination, reinterpret_cast<const void *>(source), asked.unit_size);
            }
}

std::vector<unsigned char> expected(const geometry &made)
{
    const kvmem_copy &asked = made.asked;
    std::vector<unsigned char> bytes = made.destination;
    const auto base = reinterpret_cast<uint64_t>(made.destination.data());
    for (const kvmem_copy_run &run : made.runs)
        for (unsigned block = 0; block < run.length; ++block)
            for (unsigned layer = 0; layer < asked.num_layers; ++layer)
                copy_block(asked, asked.layers[layer].source + (run.source + block) * asked.source_block_stride,
                           asked.layers[layer].destination + (run.destination + block) * asked.destination_block_stride - base,
                           bytes.data());
    return bytes;
}

bool moves_every_byte(const char *name, kernel run, geometry made, unsigned ctas, unsigned seed)
{
    const std::vector<unsigned char> wanted = expected(made);
    launch(run, ctas, made.asked);
    for (size_t index = 0; index < wanted.size(); ++index)
        if (made.destination[index] != wanted[index]) {
            std::printf("FAILED  %s, seed %u: byte %zu is %02x instead of %02x\n", name, seed, index,
                        made.destination[index], wanted[index]);
            return false;
        }
    return true;
}

} // namespace

int main(int argc, char **argv)
{
    const unsigned geometries = argc > 1 ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 120;
    unsigned failed = 0;
    for (unsigned seed = 1; seed <= geometries; ++seed) {
        random_numbers random{std::mt19937(seed)};
        const unsigned ctas = random.between(1, 3);
        failed += !moves_every_byte("blocks", by_blocks::kvmem_copy_blocks, draw(random, false), ctas, seed);
        failed += !moves_every_byte("rows", by_rows::kvmem_copy_rows, draw(random, true), ctas, seed);
        failed += !moves_every_byte("transpose", transposing::kvmem_transpose_blocks, draw_transposed(random, false), ctas, seed);
        failed += !moves_every_byte("vectors", in_vectors::kvmem_transpose_vectors, draw_transposed(random, true), ctas, seed);
    }
    std::printf("%u geometries of each kernel, %u failed\n", geometries, failed);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
