// SPDX-License-Identifier: Apache-2.0
// llama.cpp allocates host memory with posix_memalign, which no other process can map. The bytes are copied to a memfd
// once, at the start, and the memfd is mapped in place of the pages. GPU memory is adopted as it is.
#include "memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <system_error>

namespace {

[[noreturn]] void throw_errno(const char *what) { throw std::system_error(errno, std::generic_category(), what); }

class File {
public:
    explicit File(std::size_t size) : fd_(memfd_create("llama-cache", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
        if (fd_ < 0) throw_errno("memfd_create");
        // By default any user that receives the file could open it again for writing.
        if (fchmod(fd_, 0600) != 0) throw_errno("fchmod");
        if (ftruncate(fd_, static_cast<off_t>(size)) != 0) throw_errno("ftruncate");
    }
    ~File() { close(fd_); }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    int fd() const { return fd_; }

private:
    int fd_;
};

void write_all(int fd, const std::byte *bytes, std::size_t size) {
    for (std::size_t done = 0; done < size;) {
        const ssize_t written = pwrite(fd, bytes + done, size - done, static_cast<off_t>(done));
        if (written < 0) throw_errno("pwrite");
        done += static_cast<std::size_t>(written);
    }
}

kvmem::Region replace(Span pages) {
    const auto size = static_cast<std::size_t>(pages.end - pages.begin);
    const File file(size);
    write_all(file.fd(), pages.begin, size);
    if (mmap(pages.begin, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd(), 0) == MAP_FAILED) {
        throw_errno("mmap");
    }
    kvmem::AdoptMemfdOptions options;
    options.fd = file.fd();
    options.size = size;
    options.address = pages.begin;
    return kvmem::Region::adopt_memfd(options);
}

Span whole_pages(Span span) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(span.begin) / page * page;
    const auto end = (reinterpret_cast<std::uintptr_t>(span.end) + page - 1) / page * page;
    return {reinterpret_cast<std::byte *>(begin), reinterpret_cast<std::byte *>(end)};
}

// Spans that overlap or are adjacent become one.
std::vector<Span> merge(std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(), [](Span one, Span other) { return one.begin < other.begin; });
    std::vector<Span> merged;
    for (const Span &span : spans) {
        if (!merged.empty() && span.begin <= merged.back().end) {
            merged.back().end = std::max(merged.back().end, span.end);
        } else {
            merged.push_back(span);
        }
    }
    return merged;
}

}  // namespace

std::vector<CacheMemory> make_shareable(std::vector<Span> spans) {
    std::transform(spans.begin(), spans.end(), spans.begin(), whole_pages);
    std::vector<CacheMemory> memory;
    for (const Span &span : merge(std::move(spans))) memory.push_back({span, replace(span)});
    return memory;
}

std::vector<CacheMemory> adopt_gpu(std::vector<Span> spans, int gpu) {
    std::vector<CacheMemory> memory;
    for (const Span &span : merge(std::move(spans))) {
        kvmem::AdoptOptions options;
        options.address = span.begin;
        options.size = static_cast<std::uint64_t>(span.end - span.begin);
        memory.push_back({span, kvmem::Region::adopt_device(options, gpu)});
    }
    return memory;
}

kvmem::Region view_of(const std::vector<CacheMemory> &memory, Span span) {
    for (const CacheMemory &each : memory) {
        if (span.begin < each.span.begin || span.end > each.span.end) continue;
        return each.region.create_view(static_cast<std::uint64_t>(span.begin - each.span.begin),
                                       static_cast<std::uint64_t>(span.end - span.begin));
    }
    throw std::logic_error("a span is not within the memory of the cache");
}
