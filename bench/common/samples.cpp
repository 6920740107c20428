// SPDX-License-Identifier: Apache-2.0
// Order statistics, and alternate measurement.
#include "common/samples.hpp"

#include <algorithm>

namespace bench {

summary summarize(const samples &values)
{
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return {percentile(values, 0.5), *low, *high};
}

double percentile(samples values, double share)
{
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

samples rates(double amount, const samples &values)
{
    samples result;
    for (double value : values)
        result.push_back(amount / value);
    return result;
}

samples in_us(samples ns)
{
    for (double &value : ns)
        value /= 1000;
    return ns;
}

std::vector<samples> alternate(int rounds, const std::vector<candidate> &candidates)
{
    for (const candidate &warm_up : candidates)
        warm_up();
    std::vector<samples> taken(candidates.size());
    for (int round = 0; round < rounds; ++round)
        for (size_t which = 0; which < candidates.size(); ++which)
            taken[which].push_back(candidates[which]());
    return taken;
}

} // namespace bench
