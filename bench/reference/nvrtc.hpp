// SPDX-License-Identifier: Apache-2.0
// CUDA C compiled at run time, by the toolkit's NVRTC.
#pragma once

#include "reference/cuda.hpp"

#include <string>

namespace cuda {

// A kernel compiled from source, loaded into the current context until it is destroyed.
class compiled_kernel {
  public:
    // Throws the compiler's log if compilation fails, and an error if NVRTC is missing.
    compiled_kernel(const std::string &source, const char *name, int device);
    ~compiled_kernel();
    compiled_kernel(const compiled_kernel &) = delete;
    compiled_kernel &operator=(const compiled_kernel &) = delete;

    void launch(unsigned grid, unsigned block, void **parameters, stream on) const;

  private:
    module module_ = nullptr;
    function function_ = nullptr;
};

int attribute(int which, int device);

} // namespace cuda
