// SPDX-License-Identifier: Apache-2.0
// Row 2: scattered blocks within the memory of one GPU, against the driver's batch and its loop.
#include "common/gpu.hpp"
#include "common/scattered.hpp"
#include "reference/cuda.hpp"

namespace {

using namespace bench;

constexpr int device = 0;

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const uint64_t size = arena_size(scattered_bytes(chosen));
    const arena source(place::device, device, size);
    const arena destination(place::device, device, size);
    const arena mirror(place::host, device, size);
    points grid(chosen);
    const parameters setting = {{"direction", "D2D"}, {"gpu", gpu_description(device)}};
    measure_scattered(
        chosen,
        {"02-scattered-device", "D2D", setting, source, destination, mirror, order::scattered, order::scattered},
        grid, found);
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
