// SPDX-License-Identifier: Apache-2.0
// Samples of a measurement, and their median, minimum and maximum.
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

// Returns the value that `share` (0 to 1) of the samples do not exceed.
double percentile(samples values, double share);

// Returns `amount` divided by each sample: from durations to rates.
samples rates(double amount, const samples &values);

// Converts nanoseconds to microseconds.
samples in_us(samples ns);

// A function that is measured. It returns its sample, and may do work that is not timed.
using candidate = std::function<double()>;

// Runs the candidates alternately, A B C A B C: one round that is not counted, then `rounds` rounds.
std::vector<samples> alternate(int rounds, const std::vector<candidate> &candidates);

} // namespace bench
