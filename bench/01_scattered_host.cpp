// SPDX-License-Identifier: Apache-2.0
// Row 1: scattered blocks between a GPU and page-locked memory, against the driver's batch and its loop.
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
    const arena host(place::host, device, size);
    const arena gpu(place::device, device, size);
    const arena mirror(place::host, device, size);
    points grid(chosen);
    for (const order host_order : {order::scattered, order::contiguous})
        for (const bool to_device : {true, false}) {
            const char *direction = to_device ? "H2D" : "D2H";
            const char *host_side = host_order == order::scattered ? "scattered" : "contiguous";
            const parameters setting = {
                {"direction", direction}, {"host", host_side}, {"gpu", gpu_description(device)}};
            measure_scattered(chosen,
                              {"01-scattered-host", std::string(direction) + ", host side " + host_side, setting,
                               to_device ? host : gpu, to_device ? gpu : host, mirror,
                               to_device ? host_order : order::scattered,
                               to_device ? order::scattered : host_order},
                              grid, found);
        }
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
