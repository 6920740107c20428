// SPDX-License-Identifier: Apache-2.0
// The methods that several benches compare: kvmem's, the driver's, KVBM's. Each has its own stream.
#pragma once

#include "common/moves.hpp"
#include "common/program.hpp"
#include "common/side.hpp"
#include "reference/copies.hpp"
#include "reference/pointer_kernel.hpp"

#include <memory>

namespace bench {

// The blocks that move, and the two sides. The methods refer to them, so they must live longer.
struct moved_blocks {
    const side &from;
    const side &to;
    const kv::pairs &pairs;
};

// Transfers that are created once and submitted in each turn: with default options, with KVMEM_COMPUTE_IDLE, and if
// --engines is given, by each path that supports the transfer.
std::vector<move_method> prepared(const moved_blocks &moved, const options &chosen);

// Transfers by each path that supports the transfer, and by the kernel with the CTAs of --ctas.
std::vector<move_method> engines(const moved_blocks &moved, const options &chosen, uint32_t compute);

// One transfer with these options. Empty, with a message, if it cannot be created.
std::vector<move_method> prepared_as(const std::string &name, const moved_blocks &moved, kv::preferences preferred);

// The transfer is created with each submission and destroyed after each wait.
move_method created_each_time(const moved_blocks &moved);

// The driver's copies of the same spans, from lists that are prepared once. Empty if the driver has no batch.
std::vector<move_method> driver_batch(const moved_blocks &moved, bool beside_compute = false);
move_method driver_loop(const moved_blocks &moved);

// KVBM's method, with this number of CTAs; 0: as many as an idle GPU needs. Empty if the kernel is NULL.
using shared_kernel = std::shared_ptr<cuda::pointer_kernel>;
std::vector<move_method> pointer_kernel(const moved_blocks &moved, const shared_kernel &kernel, unsigned ctas = 0);

// Compiles the kernel for all points of a bench. Returns NULL, with a message, if that fails.
shared_kernel make_pointer_kernel(int device, uint64_t max_chunks);

// One copy of as many bytes, from the start of one side to the start of the other.
move_method one_large_copy(const moved_blocks &moved, uint64_t bytes);

} // namespace bench
