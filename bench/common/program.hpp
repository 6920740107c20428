// SPDX-License-Identifier: Apache-2.0
// What every bench program's main does: its options, its results, its errors, and its second process.
#pragma once

#include "common/results.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct options {
    bool quick = false; // fewer runs, smaller sizes: to see that it works
    bool engines = false; // benches of copies: each engine that kvmem may choose, too
    std::vector<unsigned> ctas; // with --engines: its kernel with each of so many CTAs
    unsigned staging_mib = 0;   // with --engines: staging memory; 0 for its own choice
    std::string only;     // GPU benches and disk: only points with one of these texts, between `|`, in their titles
    double seconds = 480; // no new point of a GPU bench begins after that
    uint64_t seed = 19;     // of points that are drawn at random
    unsigned points = 120;  // so many of them
    int rounds(int usual) const { return quick ? (usual < 5 ? usual : 5) : usual; }
};

using measure_function = void (*)(const options &, results &);
using peer_function = void (*)(const std::vector<std::string> &arguments);

// Runs `measure`, or `as_peer` in the process that the bench started; answers main's exit code.
int run_program(int argc, char **argv, measure_function measure, peer_function as_peer = nullptr);

} // namespace bench
