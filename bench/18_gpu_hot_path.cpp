// SPDX-License-Identifier: Apache-2.0
// Row 18 on a GPU: the time of the calling thread to move other blocks in every step. The same between host layouts,
// for comparison on one machine.
#include "common/gpu.hpp"
#include "common/hot_path.hpp"
#include "common/points.hpp"
#include "common/side.hpp"

namespace {

using namespace bench;

constexpr int device = 0;

struct direction {
    const char *name;
    place from;
    place to;
};

constexpr direction directions[] = {
    {"within the GPU", place::device, place::device},
    {"host to GPU", place::host, place::device},
    {"GPU to host", place::device, place::host},
    {"host to host", place::host, place::host},
};

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const uint64_t size = uint64_t{hot_pool} * hot_pieces * hot_piece_bytes;
    const arena hosts[] = {{place::host, device, size}, {place::host, device, size}};
    const arena gpus[] = {{place::device, device, size}, {place::device, device, size}};
    const arena mirror(place::host, device, size);
    points grid(chosen);
    for (const direction &going : directions)
        grid.measure(going.name, [&] {
            const side from((going.from == place::host ? hosts : gpus)[0], mirror, hot_source());
            const side to((going.to == place::host ? hosts : gpus)[1], mirror, hot_destination());
            from.fill();
            measure_hot_path(chosen,
                             {going.name, from.layout(), to.layout(), {},
                              {{"gpu", gpu_description(device)}},
                              [&](const kv::pairs &pairs) { to.verify(pairs); }},
                             found);
        });
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
