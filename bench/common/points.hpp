// SPDX-License-Identifier: Apache-2.0
// The points of a grid, one after the other. A failure skips one point, the end of the time limit all later ones.
#pragma once

#include "common/program.hpp"

#include <functional>
#include <string>

namespace bench {

// Returns whether a title contains one of the texts of `--only`, which are separated by '|'. An empty text matches
// every title.
bool has_one_of(const std::string &title, const std::string &texts);

class points {
  public:
    explicit points(const options &chosen);

    // Prints the point's title and measures it. Prints the reason if it fails or the time limit is over.
    void measure(const std::string &point, const std::function<void()> &work);

    // Prints that a point is not measured, and the reason.
    void skip(const std::string &point, const std::string &why) const;

    // Throws if a point failed or was left out. A bench calls it last.
    void finish() const;

  private:
    double seconds() const;
    bool is_chosen(const std::string &point) const;

    double start_ns_;
    double max_seconds_;
    std::string only_;
    int measured_ = 0;
    int failed_ = 0;
    int late_ = 0;
};

} // namespace bench
