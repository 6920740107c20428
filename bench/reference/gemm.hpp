// SPDX-License-Identifier: Apache-2.0
// Compute as an engine does it: bf16 matrices multiplied back to back on a stream of their own, by cuBLAS.
#pragma once

#include "reference/copies.hpp"
#include "reference/stopwatch.hpp"

#include <string>
#include <vector>

namespace cuda {

class gemms {
  public:
    // size × size matrices. Throws what is missing where there is no cuBLAS. On the tests' stand-in driver,
    // which has none and does one thing after the other, memsets stand for the products, and they are busy
    // for a few questions.
    explicit gemms(int size);
    ~gemms();
    gemms(const gemms &) = delete;
    gemms &operator=(const gemms &) = delete;

    std::string name() const;

    // Hands `count` products to the GPU and returns.
    void start(int count);
    // Whether some of them are still to be done.
    bool busy();
    // Waits for the last one and answers what one took, in microseconds of the GPU's clock.
    double wait();

  private:
    void enqueue() const;

    int size_;
    own_stream stream_;
    std::vector<address> matrices_;
    stopwatch watch_;
    void *handle_ = nullptr; // cuBLAS
    int count_ = 0;
    int pretended_ = 0; // questions
};

} // namespace cuda
