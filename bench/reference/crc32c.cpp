// SPDX-License-Identifier: Apache-2.0
// By the instruction of SSE4.2 or ARMv8.
#include "reference/crc32c.hpp"

#include <cstring>
#include <stdexcept>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define WITH_CRC __attribute__((target("sse4.2")))
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define WITH_CRC
#endif

namespace crc32c {

#ifdef WITH_CRC
namespace {

constexpr uint32_t ends = ~uint32_t{0};

uint64_t word_at(const unsigned char *first)
{
    uint64_t word;
    std::memcpy(&word, first, sizeof word);
    return word;
}

WITH_CRC inline uint32_t divide(uint32_t remainder, const unsigned char *first)
{
#ifdef __x86_64__
    return static_cast<uint32_t>(_mm_crc32_u64(remainder, word_at(first)));
#else
    return __crc32cd(remainder, word_at(first));
#endif
}

WITH_CRC uint32_t of_one(const unsigned char *block, uint64_t size)
{
    uint32_t remainder = ends;
    for (uint64_t at = 0; at < size; at += 8)
        remainder = divide(remainder, block + at);
    return ~remainder;
}

WITH_CRC void of_three(const unsigned char *const *blocks, uint64_t size, uint32_t *checksums)
{
    uint32_t remainders[] = {ends, ends, ends};
    for (uint64_t at = 0; at < size; at += 8)
        for (int each = 0; each < 3; ++each)
            remainders[each] = divide(remainders[each], blocks[each] + at);
    for (int each = 0; each < 3; ++each)
        checksums[each] = ~remainders[each];
}

} // namespace

bool is_supported()
{
#ifdef __x86_64__
    return __builtin_cpu_supports("sse4.2");
#else
    return true;
#endif
}

std::vector<uint32_t> of_blocks(const std::vector<const unsigned char *> &blocks, uint64_t size)
{
    std::vector<uint32_t> checksums(blocks.size());
    size_t done = 0;
    for (; done + 3 <= blocks.size(); done += 3)
        of_three(&blocks[done], size, &checksums[done]);
    for (; done < blocks.size(); ++done)
        checksums[done] = of_one(blocks[done], size);
    return checksums;
}

#else

bool is_supported() { return false; }

std::vector<uint32_t> of_blocks(const std::vector<const unsigned char *> &, uint64_t)
{
    throw std::runtime_error("this CPU has no instruction for CRC32C");
}

#endif

} // namespace crc32c
