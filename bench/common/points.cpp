// SPDX-License-Identifier: Apache-2.0
// Runs points, and counts those without a row.
#include "common/points.hpp"

#include "common/clock.hpp"

#include <cstdio>
#include <exception>
#include <sstream>
#include <stdexcept>

namespace bench {

bool has_one_of(const std::string &title, const std::string &texts)
{
    std::istringstream rest(texts);
    for (std::string text; std::getline(rest, text, '|');)
        if (title.find(text) != std::string::npos)
            return true;
    return texts.empty();
}

points::points(const options &chosen) : start_ns_(now_ns()), max_seconds_(chosen.seconds), only_(chosen.only)
{}

double points::seconds() const { return (now_ns() - start_ns_) * 1e-9; }

bool points::is_chosen(const std::string &point) const { return has_one_of(point, only_); }

void points::measure(const std::string &point, const std::function<void()> &work)
{
    if (!is_chosen(point))
        return;
    if (seconds() > max_seconds_) {
        std::printf("[%5.1f s] %s: left out, --seconds is over\n", seconds(), point.c_str());
        ++late_;
        return;
    }
    std::printf("[%5.1f s] %s\n", seconds(), point.c_str());
    std::fflush(stdout);
    try {
        work();
        ++measured_;
    } catch (const std::exception &failure) {
        std::printf("    FAILED: %s\n", failure.what());
        ++failed_;
    }
    std::fflush(stdout);
}

void points::skip(const std::string &point, const std::string &why) const
{
    if (is_chosen(point))
        std::printf("[%5.1f s] %s: not measured, %s\n", seconds(), point.c_str(), why.c_str());
}

void points::finish() const
{
    std::printf("%d points measured, %d failed, %d left out, in %.1f s\n", measured_, failed_, late_,
                seconds());
    if (failed_ + late_ > 0)
        throw std::runtime_error(std::to_string(failed_ + late_) + " points have no rows");
}

} // namespace bench
