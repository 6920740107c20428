// SPDX-License-Identifier: Apache-2.0
// Row 25: a run with the counters of statistics, and the same run by a library that has none. Both libraries are in this
// process, and have the same transfer. BENCH_WITHOUT is the path of that library: of the same commit, built with functions `start`, `end`
// and `add_whole` of src/run/statistics.rs that do nothing. Other commits differ in more than that. With BENCH_WITHOUT=trace it is a copy
// of this library which keeps no trace.
#include "common/clock.hpp"
#include "common/program.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <kvmem.h>
#include <optional>
#include <stdexcept>
#include <unistd.h>

namespace {

using namespace bench;

constexpr int runs = 2000;

void check(kvmem_status status, const char *what)
{
    if (status != KVMEM_STATUS_OK)
        throw std::runtime_error(std::string(what) + " has failed with " + std::to_string(status));
}

template <typename Function> Function *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        throw std::runtime_error(std::string("there is no ") + name);
    return reinterpret_cast<Function *>(found);
}

#define SYMBOL(library, function) symbol<decltype(function)>(library, #function)

// A transfer of one block between two layouts in host memory, by one library. What it creates stays until the process ends.
class transfer {
  public:
    transfer(const char *path, uint64_t bytes)
    {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            throw std::runtime_error(dlerror());
        submit_ = SYMBOL(library, kvmem_transfer_submit);
        wait_ = SYMBOL(library, kvmem_transfer_wait);
        kvmem_layout *sides[2] = {build(library, bytes), build(library, bytes)};
        check(SYMBOL(library, kvmem_transfer_create)(sides[0], sides[1], nullptr, &transfer_, nullptr), "kvmem_transfer_create");
        const kvmem_block_pair pair = {0, 1};
        kvmem_submit_options step{};
        step.struct_size = sizeof step;
        step.pairs = &pair;
        step.num_pairs = 1;
        check(SYMBOL(library, kvmem_transfer_prepare)(transfer_, &step, nullptr), "kvmem_transfer_prepare");
        run();
    }

    // Returns nanoseconds per run.
    double run() const
    {
        kvmem_status failed = KVMEM_STATUS_OK;
        const double taken = time_ns([&] {
            for (int i = 0; i < runs; ++i) {
                failed |= submit_(transfer_, nullptr, nullptr);
                failed |= wait_(transfer_, KVMEM_TIMEOUT_FOREVER, nullptr);
            }
        });
        check(failed, "a run");
        return taken / runs;
    }

  private:
    static kvmem_layout *build(void *library, uint64_t bytes)
    {
        kvmem_layout_config shape{};
        shape.struct_size = sizeof shape;
        shape.num_blocks = 2;
        shape.num_layers = 1;
        shape.outer_dim = 1;
        shape.page_size = 1;
        shape.inner_dim = bytes;
        shape.dtype_width = 1;
        shape.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
        kvmem_system_options memory{};
        memory.struct_size = sizeof memory;
        kvmem_layout_options options{};
        options.struct_size = sizeof options;
        options.config = &shape;
        options.source = KVMEM_LAYOUT_ALLOCATE;
        options.system = &memory;
        kvmem_layout *layout = nullptr;
        check(SYMBOL(library, kvmem_layout_build)(&options, &layout, nullptr), "kvmem_layout_build");
        return layout;
    }

    decltype(kvmem_transfer_submit) *submit_;
    decltype(kvmem_transfer_wait) *wait_;
    kvmem_transfer *transfer_ = nullptr;
};

// A copy of a library, which the dynamic linker loads beside it; removed when it goes out of scope.
class copied_library {
  public:
    explicit copied_library(const std::string &path) : path_(std::filesystem::temp_directory_path() / ("bench-25-" + std::to_string(getpid())))
    {
        std::filesystem::copy_file(path, path_);
    }

    copied_library(const copied_library &) = delete;
    copied_library &operator=(const copied_library &) = delete;
    ~copied_library() { std::filesystem::remove(path_); }

    const char *path() const { return path_.c_str(); }

  private:
    std::filesystem::path path_;
};

std::string own_library()
{
    Dl_info found{};
    if (dladdr(reinterpret_cast<void *>(&kvmem_abi_version), &found) == 0)
        throw std::runtime_error("the library of this program is not found");
    return found.dli_fname;
}

void measure(const options &chosen, results &found)
{
    const char *without = std::getenv("BENCH_WITHOUT");
    if (!without)
        throw std::runtime_error("BENCH_WITHOUT is not set: the path of a libkvmem.so without statistics");
    const bool is_trace = std::string(without) == "trace";
    std::optional<copied_library> copied;
    if (is_trace)
        without = copied.emplace(own_library()).path();
    for (const uint64_t bytes : {uint64_t{512}, uint64_t{16384}}) {
        const transfer counted(own_library().c_str(), bytes);
        if (is_trace) // read at the first run of a library
            setenv("KVMEM_TRACE", "0", 1);
        const transfer uncounted(without, bytes);
        unsetenv("KVMEM_TRACE");
        const std::vector<samples> taken =
            alternate(chosen.rounds(201), {[&] { return counted.run(); }, [&] { return uncounted.run(); }});
        const char *other = is_trace ? "the library without its trace" : "the library without statistics";
        found.add({"25-statistics", {{"bytes", bytes}}, taken[0], other, taken[1], {}, "ns"});
    }
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
