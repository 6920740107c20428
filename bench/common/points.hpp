// SPDX-License-Identifier: Apache-2.0
// The points of a grid, one after the other: a failure costs one point, and time that is over the rest.
#pragma once

#include "common/program.hpp"

#include <functional>
#include <string>

namespace bench {

// Whether a title contains one of the texts of `--only`, which are separated by '|'. No text chooses every title.
bool has_one_of(const std::string &title, const std::string &texts);

class points {
  public:
    explicit points(const options &chosen);

    // Tells the point and measures it; tells why where that fails, or where its time is over.
    void measure(const std::string &point, const std::function<void()> &work);

    // Tells a point that is not to be measured.
    void skip(const std::string &point, const std::string &why) const;

    // Throws what was left out, if anything was. A bench calls it last.
    void finish() const;

  private:
    double seconds() const;
    bool is_chosen(const std::string &point) const;

    double start_ns_;
    double most_seconds_;
    std::string only_;
    int measured_ = 0;
    int failed_ = 0;
    int late_ = 0;
};

} // namespace bench
