// SPDX-License-Identifier: Apache-2.0
// Samples of a measurement: taken in turns, summed up by median, minimum and maximum.
#pragma once

#include <functional>
#include <vector>

namespace bench {

using samples = std::vector<double>;

struct summary {
    double median;
    double min;
    double max;
};

summary summarize(const samples &values);

// The value below which `share` (0 to 1) of the samples lie.
double percentile(samples values, double share);

// Each sample divided into `amount`: from times to rates.
samples rates(double amount, const samples &values);

// Nanoseconds as microseconds.
samples in_us(samples ns);

// One thing that is measured; it answers its sample, and may do untimed work around it.
using candidate = std::function<double()>;

// Lets the candidates take turns, A B C A B C: one turn unmeasured, then `rounds` turns.
std::vector<samples> alternate(int rounds, const std::vector<candidate> &candidates);

} // namespace bench
