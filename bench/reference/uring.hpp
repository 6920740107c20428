// SPDX-License-Identifier: Apache-2.0
// The reference for files: io_uring without a library or a thread, with one request for each piece.
#pragma once

#include "reference/nixl_file.hpp"

#include <cstdint>
#include <vector>

namespace uring {

// A ring, whose requests are submitted together and replaced as they end.
class ring {
  public:
    explicit ring(unsigned entries);
    ~ring();
    ring(const ring &) = delete;
    ring &operator=(const ring &) = delete;

    // Transfers all pieces. Throws if one fails or moves fewer bytes.
    void transfer(int file, bool writes, const std::vector<nixl::file_piece> &pieces);

  private:
    struct mapping {
        void *address = nullptr;
        size_t size = 0;
    };
    mapping map(uint64_t offset, size_t size) const;

    unsigned entries_;
    int descriptor_;
    mapping queues_, requests_;
    unsigned *submitted_, *completed_, *taken_, submission_mask_, completion_mask_;
    unsigned *order_;
    void *completions_;
};

} // namespace uring
