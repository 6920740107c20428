// SPDX-License-Identifier: Apache-2.0
// Row 11: blocks between host memory and a file, against NIXL's POSIX plugin and pread/pwrite on that file.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/pattern.hpp"
#include "common/points.hpp"
#include "common/program.hpp"
#include "reference/nixl_file.hpp"
#include "reference/positioned_io.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace {

using namespace bench;

constexpr unsigned several = 8; // threads of the reference

struct disk_case {
    uint64_t block_bytes;
    bool writes;
    bool direct;
    bool in_order; // blocks are consecutive in the file, as written by a cache that offloads
};

int descriptor_of(const kv::layout &file)
{
    kvmem_layout_info info{};
    kv::call(kvmem_layout_get_info, file.get(), &info);
    return static_cast<int>(info.device_id);
}

uintptr_t first_byte(const kv::layout &layout)
{
    return reinterpret_cast<uintptr_t>(host_view(layout).piece(0, 0, 0));
}

// Memory and a file with the same blocks, and memory into which the file is read for checks.
class disk_sides {
  public:
    disk_sides(uint64_t num_blocks, const disk_case &shape)
        : shape_(shape), size_(num_blocks * shape.block_bytes),
          config_(blocks_of(shape.block_bytes, num_blocks, 1, 1)), host_(kv::make_layout(config_)),
          file_(kv::make_file(config_, shape.direct ? KVMEM_DISK_DIRECT_REQUIRED : KVMEM_DISK_BUFFERED)),
          mirror_(kv::make_layout(config_)),
          descriptor_(descriptor_of(file_)), seen_(file_, first_byte(mirror_), 1)
    {
        seen_.fill();
        whole_file(true);
        host_view(host_).fill();
    }

    const kv::layout &source() const { return shape_.writes ? host_ : file_; }
    const kv::layout &destination() const { return shape_.writes ? file_ : host_; }
    uintptr_t memory() const { return first_byte(host_); }
    uint64_t size() const { return size_; }
    int descriptor() const { return descriptor_; }

    std::vector<nixl::file_piece> pieces(const kv::pairs &pairs) const
    {
        std::vector<nixl::file_piece> found;
        for (const kvmem_block_pair &pair : pairs) {
            const uint64_t in_memory = shape_.writes ? pair.source : pair.destination;
            const uint64_t in_file = shape_.writes ? pair.destination : pair.source;
            found.push_back({memory() + in_memory * shape_.block_bytes, in_file * shape_.block_bytes,
                             static_cast<size_t>(shape_.block_bytes)});
        }
        return found;
    }

    void wipe(const kv::pairs &pairs)
    {
        if (!shape_.writes)
            return host_view(host_).wipe(pairs);
        wipe_memory(reinterpret_cast<unsigned char *>(first_byte(mirror_)), size_);
        whole_file(true);
    }

    void verify(const kv::pairs &pairs)
    {
        if (!shape_.writes)
            return host_view(host_).verify(pairs);
        whole_file(false);
        seen_.verify(pairs);
    }

  private:
    // Copies the mirror to the file, or the file to the mirror.
    void whole_file(bool writes)
    {
        std::vector<nixl::file_piece> parts;
        constexpr uint64_t part = 4 << 20;
        for (uint64_t done = 0; done < size_; done += part)
            parts.push_back({first_byte(mirror_) + done, done, std::min<size_t>(part, size_ - done)});
        positioned::transfer(descriptor_, writes, parts, 2);
    }

    disk_case shape_;
    uint64_t size_;
    kvmem_layout_config config_;
    kv::layout host_;
    kv::layout file_;
    kv::layout mirror_;
    int descriptor_;
    host_view seen_;
};

// Pairs that are scattered in memory, and in the file scattered or consecutive.
kv::pairs pairs_of(uint32_t count, uint32_t pool, const disk_case &shape)
{
    kv::pairs pairs = scattered_pairs(count, pool);
    if (!shape.in_order)
        return pairs;
    for (uint32_t index = 0; index < count; ++index)
        (shape.writes ? pairs[index].destination : pairs[index].source) = index;
    return pairs;
}

struct method {
    const char *name;
    std::function<void()> run;
    samples cpu; // seconds per GB, one for each turn
};

// Returns the duration of one turn, and adds its CPU time to the method.
candidate measured(disk_sides &sides, const kv::pairs &pairs, method &asked, double gigabytes)
{
    return [&sides, &pairs, &asked, gigabytes] {
        sides.wipe(pairs);
        const double before = cpu_seconds();
        const double taken = time_ns(asked.run);
        asked.cpu.push_back((cpu_seconds() - before) / gigabytes);
        sides.verify(pairs);
        return taken;
    };
}

kv::transfer by_path(const disk_sides &sides, const kv::pairs &pairs, uint32_t path)
{
    kv::preferences preferred;
    preferred.path = path;
    return kv::make_transfer(sides.source(), sides.destination(), pairs, {}, preferred);
}

std::string title_of(const disk_case &shape)
{
    const std::string io = shape.direct ? "direct" : "buffered";
    return io + (shape.writes ? ", host to disk" : ", disk to host") +
           (shape.in_order ? ", file in order, " : ", file scattered, ") +
           std::to_string(shape.block_bytes >> 10) + " KiB";
}

void measure_case(const options &chosen, const disk_case &shape, results &found)
{
    if (!has_one_of(title_of(shape), chosen.only))
        return;
    const uint64_t total = chosen.quick ? 16 << 20 : 128 << 20;
    const auto pool = static_cast<uint32_t>(total / shape.block_bytes);
    disk_sides sides(pool, shape);
    const kv::pairs pairs = pairs_of(pool * 3 / 4, pool, shape);
    const std::vector<nixl::file_piece> pieces = sides.pieces(pairs);
    const auto bytes = static_cast<double>(pairs.size() * shape.block_bytes);

    const kv::transfer ours = by_path(sides, pairs, 0);
    const nixl::file_agent plain("reference", "", sides.memory(), sides.descriptor(), sides.size());
    const nixl::file_agent ring("reference-ring", "use_uring", sides.memory(), sides.descriptor(), sides.size());
    nixl::file_request plain_request(plain, shape.writes, pieces);
    nixl::file_request ring_request(ring, shape.writes, pieces);
    std::vector<nixl::file_piece> large;
    const uint64_t total_moved = pairs.size() * shape.block_bytes;
    for (uint64_t done = 0; done < total_moved; done += 1 << 20)
        large.push_back({sides.memory() + done, done, std::min<size_t>(1 << 20, total_moved - done)});

    const auto positioned_by = [&](unsigned threads) {
        return [&, threads] { positioned::transfer(sides.descriptor(), shape.writes, pieces, threads); };
    };
    std::vector<method> methods = {
        {"ours", [&] { kv::submit_and_wait(ours); }, {}},
        {"NIXL POSIX, request posted again", [&] { plain_request.post_and_poll(); }, {}},
        {"NIXL POSIX by io_uring, request posted again", [&] { ring_request.post_and_poll(); }, {}},
        {"pread/pwrite of each block, 1 thread", positioned_by(1), {}},
        {"pread/pwrite of each block, 8 threads", positioned_by(several), {}},
    };
    std::vector<kv::transfer> engines;
    if (chosen.engines)
        for (uint32_t path : {KVMEM_METHOD_URING, KVMEM_METHOD_PREAD}) {
            engines.push_back(by_path(sides, pairs, path));
            kvmem_transfer *engine = engines.back().get();
            methods.push_back({kvmem_method_name(path), [engine] {
                                kv::call(kvmem_transfer_submit, engine, nullptr);
                                kv::call(kvmem_transfer_wait, engine, KVMEM_TIMEOUT_FOREVER);
                            }, {}});
        }
    std::vector<candidate> candidates;
    for (method &asked : methods)
        candidates.push_back(measured(sides, pairs, asked, bytes / 1e9));
    // The ceiling: consecutive parts of 1 MiB. Nothing is checked, and the next turn wipes what it wrote.
    candidates.push_back([&] {
        return time_ns([&] { positioned::transfer(sides.descriptor(), shape.writes, large, several); });
    });
    const std::vector<samples> taken = alternate(chosen.rounds(7), candidates);
    for (method &asked : methods)
        asked.cpu.erase(asked.cpu.begin()); // the first turn is not counted

    const parameters described = {{"direction", shape.writes ? "host to disk" : "disk to host"},
                                  {"io", shape.direct ? "direct" : "buffered"},
                                  {"file", shape.in_order ? "in order" : "scattered"},
                                  {"block_bytes", shape.block_bytes},
                                  {"blocks", pairs.size()},
                                  {"path", kv::path_of(ours)}};
    for (size_t other = 1; other < methods.size(); ++other) {
        parameters timed = described;
        timed.emplace_back("timed", "submit, wait");
        found.add({"11-disk", timed, rates(bytes, taken[0]), methods[other].name, rates(bytes, taken[other]),
                   rates(bytes, taken.back()), "GB/s"});
        parameters spent = described;
        spent.emplace_back("timed", "CPU time of the process");
        found.add({"11-disk", spent, methods[0].cpu, methods[other].name, methods[other].cpu, {}, "CPU s/GB"});
    }
}

void measure(const options &chosen, results &found)
{
    for (bool direct : {true, false})
        for (bool writes : {true, false})
            for (bool in_order : {true, false})
                for (uint64_t block_bytes = 16 << 10; block_bytes <= 4 << 20; block_bytes *= 4)
                    measure_case(chosen, {block_bytes, writes, direct, in_order}, found);
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
