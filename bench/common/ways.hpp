// SPDX-License-Identifier: Apache-2.0
// The ways that several benches compare: kvmem's, the driver's, KVBM's. Each has a stream of its own.
#pragma once

#include "common/moves.hpp"
#include "common/program.hpp"
#include "common/side.hpp"
#include "reference/copies.hpp"
#include "reference/pointer_kernel.hpp"

#include <memory>

namespace bench {

// What moves, and between what; all of it outlives the ways.
struct move_of {
    const side &from;
    const side &to;
    const kv::pairs &pairs;
};

// Transfers made beforehand and submitted again and again: as kvmem chooses while the GPU may compute, which
// is the default; as it chooses where the GPU is told to be idle; and, if wanted, with each engine that takes
// such a move.
std::vector<move_way> prepared(const move_of &moved, const options &chosen);

// Only these engines.
std::vector<move_way> engines(const move_of &moved, const options &chosen, uint32_t compute);

// One that is asked to go so; no way where it can't, which is told.
std::vector<move_way> prepared_as(const std::string &name, const move_of &moved, kv::wish wished);

// The transfer is created with each submission and destroyed after each wait.
move_way created_each_time(const move_of &moved);

// The driver's copies of the same stretches, from lists made beforehand. The batch answers no way where the
// driver has none.
std::vector<move_way> driver_batch(const move_of &moved, bool beside_compute = false);
move_way driver_loop(const move_of &moved);

// KVBM's way, with so many CTAs; 0 for as many as serve an idle GPU. No way where there is no kernel.
using shared_kernel = std::shared_ptr<cuda::pointer_kernel>;
std::vector<move_way> pointer_kernel(const move_of &moved, const shared_kernel &kernel, unsigned ctas = 0);

// One for all points of a bench; NULL where none can be made, which is told.
shared_kernel make_pointer_kernel(int device, uint64_t most_chunks);

// One copy of as many bytes from the start of the one side to the start of the other.
move_way one_large_copy(const move_of &moved, uint64_t bytes);

} // namespace bench
