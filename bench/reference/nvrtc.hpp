// SPDX-License-Identifier: Apache-2.0
// CUDA C compiled on the machine that runs it, by the toolkit's NVRTC.
#pragma once

#include "reference/cuda.hpp"

#include <string>

namespace cuda {

// A kernel of a source text, loaded into the current context while the value lives.
class compiled_kernel {
  public:
    // Throws the compiler's log where it does not compile, and what is missing where there is no compiler.
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
