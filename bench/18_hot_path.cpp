// SPDX-License-Identifier: Apache-2.0
// Row 18 between host layouts: the time of the calling thread to move other blocks in every step.
#include "common/hot_path.hpp"
#include "common/pattern.hpp"

namespace {

using namespace bench;

void measure(const options &chosen, results &found)
{
    const kv::layout from = kv::make_layout(hot_source());
    const kv::layout to = kv::make_layout(hot_destination());
    const host_view source(from);
    source.fill();
    const host_view view(to);
    measure_hot_path(chosen,
                     {"host to host", from, to, {}, {}, [&](const kv::pairs &pairs) { view.verify(pairs); }},
                     found);
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
