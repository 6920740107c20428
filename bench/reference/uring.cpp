// SPDX-License-Identifier: Apache-2.0
#include "reference/uring.hpp"

#include <algorithm>
#include <cerrno>
#include <linux/io_uring.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

namespace uring {
namespace {

[[noreturn]] void fail(const char *call) { throw std::system_error(errno, std::generic_category(), call); }

template <typename Value> Value *at(void *base, unsigned offset)
{
    return reinterpret_cast<Value *>(static_cast<char *>(base) + offset);
}

} // namespace

ring::ring(unsigned entries) : entries_(entries)
{
    io_uring_params made{};
    descriptor_ = static_cast<int>(syscall(SYS_io_uring_setup, entries, &made));
    if (descriptor_ < 0)
        fail("io_uring_setup");
    if (!(made.features & IORING_FEAT_SINGLE_MMAP))
        throw std::runtime_error("io_uring has two mappings for its queues: Linux 5.4 or later is needed");
    queues_ = map(IORING_OFF_SQ_RING, std::max<size_t>(made.sq_off.array + made.sq_entries * sizeof(unsigned),
                                                       made.cq_off.cqes + made.cq_entries * sizeof(io_uring_cqe)));
    requests_ = map(IORING_OFF_SQES, made.sq_entries * sizeof(io_uring_sqe));
    submitted_ = at<unsigned>(queues_.address, made.sq_off.tail);
    submission_mask_ = *at<unsigned>(queues_.address, made.sq_off.ring_mask);
    order_ = at<unsigned>(queues_.address, made.sq_off.array);
    taken_ = at<unsigned>(queues_.address, made.cq_off.head);
    completed_ = at<unsigned>(queues_.address, made.cq_off.tail);
    completion_mask_ = *at<unsigned>(queues_.address, made.cq_off.ring_mask);
    completions_ = at<void>(queues_.address, made.cq_off.cqes);
}

ring::~ring()
{
    munmap(requests_.address, requests_.size);
    munmap(queues_.address, queues_.size);
    close(descriptor_);
}

ring::mapping ring::map(uint64_t offset, size_t size) const
{
    void *address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor_,
                         static_cast<off_t>(offset));
    if (address == MAP_FAILED)
        fail("mmap of io_uring");
    return {address, size};
}

void ring::transfer(int file, bool writes, const std::vector<nixl::file_piece> &pieces)
{
    size_t begun = 0, ended = 0;
    while (ended < pieces.size()) {
        unsigned tail = *submitted_, added = 0;
        for (; begun < pieces.size() && begun - ended < entries_; ++begun, ++added, ++tail) {
            const unsigned slot = tail & submission_mask_;
            io_uring_sqe &request = static_cast<io_uring_sqe *>(requests_.address)[slot];
            request = {};
            request.opcode = writes ? IORING_OP_WRITE : IORING_OP_READ;
            request.fd = file;
            request.addr = pieces[begun].address;
            request.len = static_cast<uint32_t>(pieces[begun].size);
            request.off = pieces[begun].offset;
            request.user_data = pieces[begun].size;
            order_[slot] = slot;
        }
        __atomic_store_n(submitted_, tail, __ATOMIC_RELEASE);
        const long entered =
            syscall(SYS_io_uring_enter, descriptor_, added, 1u, IORING_ENTER_GETEVENTS, nullptr, size_t{0});
        if (entered != static_cast<long>(added))
            fail("io_uring_enter");
        unsigned head = *taken_;
        for (; head != __atomic_load_n(completed_, __ATOMIC_ACQUIRE); ++head, ++ended) {
            const io_uring_cqe &done = static_cast<io_uring_cqe *>(completions_)[head & completion_mask_];
            if (done.res < 0 || static_cast<uint64_t>(done.res) != done.user_data)
                throw std::runtime_error("io_uring failed or moved fewer bytes");
        }
        __atomic_store_n(taken_, head, __ATOMIC_RELEASE);
    }
}

} // namespace uring
