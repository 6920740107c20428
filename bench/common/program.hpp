// SPDX-License-Identifier: Apache-2.0
// The common main function of the bench programs: options, results, errors, and the second process.
#pragma once

#include "common/results.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct options {
    bool quick = false;   // fewer runs and smaller sizes, to check that the bench works
    bool engines = false; // benches of copies: also each path of kvmem
    std::vector<unsigned> ctas; // with --engines: also the kernel with each of these numbers of CTAs
    unsigned staging_mib = 0;   // with --engines: size of the staging memory; 0: kvmem's default
    std::string only;     // GPU benches, disk, row 17: points whose titles contain one of these texts, separated by `|`
    double seconds = 480; // GPU benches: no point begins after this time
    uint64_t seed = 19;     // of the points that are drawn at random
    unsigned points = 120;  // number of points that are drawn at random
    int rounds(int usual) const { return quick ? (usual < 5 ? usual : 5) : usual; }
};

using measure_function = void (*)(const options &, results &);
using peer_function = void (*)(const std::vector<std::string> &arguments);

// Runs `measure`, or `as_peer` in the process that the bench starts. Returns the exit code of main.
int run_program(int argc, char **argv, measure_function measure, peer_function as_peer = nullptr);

} // namespace bench
