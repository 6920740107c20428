// SPDX-License-Identifier: Apache-2.0
// Threads are started for each transfer, which takes some tens of microseconds.
#include "reference/positioned_io.hpp"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace positioned {
namespace {

bool is_done(int file, bool writes, const nixl::file_piece &piece)
{
    void *memory = reinterpret_cast<void *>(piece.address);
    const auto offset = static_cast<off_t>(piece.offset);
    const ssize_t moved =
        writes ? pwrite(file, memory, piece.size, offset) : pread(file, memory, piece.size, offset);
    return moved == static_cast<ssize_t>(piece.size);
}

} // namespace

void transfer(int file, bool writes, const std::vector<nixl::file_piece> &pieces, unsigned threads)
{
    std::atomic<size_t> next{0};
    std::atomic<bool> failed{false};
    const auto work = [&] {
        for (size_t index = next++; index < pieces.size(); index = next++)
            if (!is_done(file, writes, pieces[index]))
                failed = true;
    };
    std::vector<std::thread> others;
    for (unsigned thread = 1; thread < threads; ++thread)
        others.emplace_back(work);
    work();
    for (std::thread &other : others)
        other.join();
    if (failed)
        throw std::runtime_error("pread or pwrite failed or moved fewer bytes");
}

} // namespace positioned
