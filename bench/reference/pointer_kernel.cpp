// SPDX-License-Identifier: Apache-2.0
// The kernel's text, its arrays and its event.
#include "reference/pointer_kernel.hpp"

#include <algorithm>

namespace cuda {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned ctas_per_multiprocessor = 4;
constexpr unsigned event_without_timing = 2;

// Accesses of 16 bytes per thread, four in flight at a time. Chunks that are not aligned to 16 bytes are copied by
// bytes.
constexpr char source[] = R"(
extern "C" __global__ void copy_chunks(const unsigned long long *to, const unsigned long long *from,
                                       unsigned long long size, unsigned count)
{
    for (unsigned chunk = blockIdx.x; chunk < count; chunk += gridDim.x) {
        if (((to[chunk] | from[chunk] | size) & 15) == 0) {
            uint4 *destination = (uint4 *)to[chunk];
            const uint4 *source = (const uint4 *)from[chunk];
            const unsigned long long words = size / 16;
            unsigned long long word = threadIdx.x;
            for (; word + 3 * blockDim.x < words; word += 4 * blockDim.x) {
                const uint4 first = source[word];
                const uint4 second = source[word + blockDim.x];
                const uint4 third = source[word + 2 * blockDim.x];
                const uint4 fourth = source[word + 3 * blockDim.x];
                destination[word] = first;
                destination[word + blockDim.x] = second;
                destination[word + 2 * blockDim.x] = third;
                destination[word + 3 * blockDim.x] = fourth;
            }
            for (; word < words; word += blockDim.x)
                destination[word] = source[word];
        } else {
            char *destination = (char *)to[chunk];
            const char *source = (const char *)from[chunk];
            for (unsigned long long byte = threadIdx.x; byte < size; byte += blockDim.x)
                destination[byte] = source[byte];
        }
    }
}
)";

} // namespace

pointer_kernel::pointer_kernel(int device, uint32_t max_chunks)
    : kernel_(source, "copy_chunks", device), max_chunks_(max_chunks),
      all_ctas_(ctas_per_multiprocessor * static_cast<unsigned>(attribute(multiprocessor_count, device)))
{
    const size_t bytes = 2 * sizeof(address) * max_chunks;
    check(load().host_alloc(reinterpret_cast<void **>(&pinned_), bytes, host_portable | host_mapped),
          "cuMemHostAlloc");
    check(load().memory_alloc(&uploaded_, bytes), "cuMemAlloc");
    check(load().event_create(&done_, event_without_timing), "cuEventCreate");
}

pointer_kernel::~pointer_kernel()
{
    load().event_destroy(done_);
    load().memory_free(uploaded_);
    load().host_free(pinned_);
}

void pointer_kernel::reuse_arrays() { check(load().event_synchronize(done_), "cuEventSynchronize"); }

void pointer_kernel::copy(uint32_t count, uint64_t size, unsigned ctas, stream on)
{
    const library &driver = load();
    address to_array = uploaded_;
    address from_array = uploaded_ + sizeof(address) * max_chunks_;
    const size_t bytes = sizeof(address) * count;
    check(driver.copy_async(to_array, reinterpret_cast<address>(to()), bytes, on), "cuMemcpyAsync");
    check(driver.copy_async(from_array, reinterpret_cast<address>(from()), bytes, on), "cuMemcpyAsync");
    void *parameters[] = {&to_array, &from_array, &size, &count};
    kernel_.launch(std::min(count, ctas == 0 ? all_ctas_ : ctas), threads, parameters, on);
    check(driver.event_record(done_, on), "cuEventRecord");
}

} // namespace cuda
