// SPDX-License-Identifier: Apache-2.0
// Work of several threads, for steps that are not measured.
#pragma once

#include <cstddef>
#include <future>
#include <vector>

namespace bench {

// Calls work(first, last) for consecutive parts of 0 to count, each on a thread. Rethrows an exception of a part.
template <typename Work> void in_parts(size_t count, unsigned threads, Work work)
{
    if (threads < 2 || count < 2) {
        work(size_t{0}, count);
        return;
    }
    std::vector<std::future<void>> parts;
    for (unsigned part = 0; part < threads; ++part)
        parts.push_back(
            std::async(std::launch::async, work, count * part / threads, count * (part + 1) / threads));
    for (std::future<void> &part : parts)
        part.get();
}

} // namespace bench
