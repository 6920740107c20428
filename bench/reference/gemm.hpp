// SPDX-License-Identifier: Apache-2.0
// Compute like that of an engine: bf16 matrix products back to back on their own stream, by cuBLAS.
#pragma once

#include "reference/copies.hpp"
#include "reference/stopwatch.hpp"

#include <string>
#include <vector>

namespace cuda {

class gemms {
  public:
    // size × size matrices. Throws if cuBLAS is missing. The tests' stand-in driver has no cuBLAS, and completes each
    // call before it returns: there the products are memsets, and `busy` returns true a fixed number of times.
    explicit gemms(int size);
    ~gemms();
    gemms(const gemms &) = delete;
    gemms &operator=(const gemms &) = delete;

    std::string name() const;

    // Submits `count` products and returns.
    void start(int count);
    // Returns whether the last product is not done.
    bool busy();
    // Waits for the last product. Returns the mean duration of one, in microseconds of the GPU's clock.
    double wait();

  private:
    void enqueue() const;

    int size_;
    own_stream stream_;
    std::vector<address> matrices_;
    stopwatch watch_;
    void *handle_ = nullptr; // cuBLAS
    int count_ = 0;
    int simulated_queries_ = 0; // calls of `busy` that still return true on the stand-in
};

} // namespace cuda
