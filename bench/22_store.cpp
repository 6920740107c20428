// SPDX-License-Identifier: Apache-2.0
// Row 22: blocks that are put into a store and gotten from it, keys that are looked up in it, and the opening of a store with a million
// blocks, which reads its index.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/pattern.hpp"
#include "common/points.hpp"
#include "common/program.hpp"
#include "reference/uring.hpp"

#include <kvmem/store.h>

#include <deque>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <random>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <unordered_set>

namespace {

using namespace bench;

using store = std::unique_ptr<kvmem_store, kv::destroyer<kvmem_store_destroy>>;

constexpr size_t key_size = 32;
constexpr size_t at_once = 8192;

// A folder that is removed with it.
struct folder {
    std::string path = "/tmp/kvmem_bench_store_" + std::to_string(getpid());
    std::string file(const char *name) const { return path + "/" + name; }
    ~folder()
    {
        for (const char *name : {"store", "index.0", "blocks.0", "writer", "reference"})
            unlink(file(name).c_str());
        rmdir(path.c_str());
    }
};

kvmem_layout_config shape(uint64_t blocks)
{
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = blocks;
    config.num_layers = config.outer_dim = config.page_size = 1;
    config.inner_dim = 32;
    config.dtype_width = 2;
    config.alignment = 64;
    config.order = KVMEM_ORDER_FULLY_CONTIGUOUS;
    return config;
}

store open_store(const folder &folder, const kvmem_layout_config &config, uint32_t durability, uint64_t flags)
{
    kvmem_store_options options{};
    options.struct_size = sizeof options;
    options.path = folder.path.c_str();
    options.config = &config;
    options.durability = durability;
    options.flags = flags;
    return kv::make<store>(kvmem_store_open, &options, KVMEM_TIMEOUT_FOREVER);
}

store open_store(const folder &folder, uint64_t slots)
{
    return open_store(folder, shape(slots), KVMEM_DURABILITY_NONE, KVMEM_DISK_BUFFERED);
}

std::vector<unsigned char> random_keys(size_t count)
{
    std::mt19937_64 random(22);
    std::vector<unsigned char> keys(count * key_size);
    for (unsigned char &byte : keys)
        byte = static_cast<unsigned char>(random());
    return keys;
}

void fill(const store &into, const std::vector<unsigned char> &keys)
{
    const kv::layout memory = kv::make_layout(shape(at_once), nullptr, 0);
    std::vector<uint32_t> ids(at_once);
    for (size_t i = 0; i < at_once; ++i)
        ids[i] = static_cast<uint32_t>(i);
    const size_t all = keys.size() / key_size;
    for (size_t first = 0; first < all; first += at_once) {
        kvmem_store_blocks blocks{};
        blocks.struct_size = sizeof blocks;
        blocks.keys = keys.data() + first * key_size;
        blocks.key_size = key_size;
        blocks.num_keys = blocks.num_blocks = all - first < at_once ? all - first : at_once;
        blocks.blocks = ids.data();
        blocks.flags = KVMEM_STORE_UNRELATED;
        kvmem_transfer *started = nullptr;
        size_t moved = 0;
        kv::call(kvmem_store_put, into.get(), memory.get(), nullptr, &blocks, &started, &moved);
        const kv::transfer transfer(started);
        kv::call(kvmem_transfer_wait, transfer.get(), KVMEM_TIMEOUT_FOREVER);
    }
}

// Nanoseconds per key, in lists of `count` keys.
candidate looked_up(const store &in, const std::vector<unsigned char> &keys, size_t count)
{
    return [&in, &keys, count] {
        const size_t all = keys.size() / key_size / count * count;
        std::vector<uint8_t> found(count);
        const double taken = time_ns([&] {
            for (size_t first = 0; first < all; first += count)
                kv::call(kvmem_store_contains, in.get(), keys.data() + first * key_size, key_size, count, found.data());
        });
        return taken / static_cast<double>(all);
    };
}

candidate looked_up_in_set(const std::unordered_set<std::string_view> &set, const std::vector<unsigned char> &keys)
{
    return [&set, &keys] {
        size_t found = 0;
        const size_t all = keys.size() / key_size;
        const double taken = time_ns([&] {
            for (size_t i = 0; i < all; ++i)
                found += set.count({reinterpret_cast<const char *>(keys.data()) + i * key_size, key_size});
        });
        if (found != all)
            throw std::runtime_error("a key is missing");
        return taken / static_cast<double>(all);
    };
}

// ---- put and get ----

// What a caller of put or get moves at a time.
struct calls {
    uint64_t bytes; // of a call
    unsigned in_flight;
};
// The second is of a caller that does not wait for one before the next.
constexpr calls small_calls{16 << 20, 1}, all_calls[] = {small_calls, {16 << 20, 2}, {64 << 20, 1}};
// Of the reference.
constexpr unsigned max_requests = 128;
// What the index of a store has for each block.
constexpr uint64_t record_size = 256;

// A store of which each slot is used, memory that its blocks are put from, and memory that they are gotten to. Blocks are scattered in
// memory, and in order in the file.
class stored_blocks {
  public:
    stored_blocks(uint64_t block_bytes, uint64_t num_blocks, uint32_t durability)
        : block_bytes_(block_bytes), config_(blocks_of(block_bytes, num_blocks, 4, 2)), source_(in_memory()),
          destination_(in_memory()), store_(open_store(folder_, config_, durability, KVMEM_DISK_DIRECT_REQUIRED)),
          keys_(random_keys(num_blocks)), pairs_(scattered_pairs(static_cast<uint32_t>(num_blocks), static_cast<uint32_t>(num_blocks))),
          file_(opened("blocks.0", O_DIRECT)), records_(opened("reference", O_CREAT))
    {
        host_view(source_).fill();
        move(kvmem_store_put, small_calls, source_, &kvmem_block_pair::source);
    }
    ~stored_blocks()
    {
        close(file_);
        close(records_);
    }
    stored_blocks(const stored_blocks &) = delete;

    candidate put(calls by)
    {
        return written([this, by] { move(kvmem_store_put, by, source_, &kvmem_block_pair::source); });
    }
    candidate get(calls by)
    {
        return read([this, by] { move(kvmem_store_get, by, destination_, &kvmem_block_pair::destination); });
    }
    // With one sync after each call, of the blocks, or with a second one, of records that are appended to another file after the first.
    candidate written_bare(calls by, unsigned syncs)
    {
        return written([this, by, syncs, ring = ring_for(by)] { move_bare(*ring, true, by, syncs, source_, &kvmem_block_pair::source); });
    }
    candidate read_bare(calls by)
    {
        return read([this, by, ring = ring_for(by)] { move_bare(*ring, false, by, 0, destination_, &kvmem_block_pair::destination); });
    }

  private:
    candidate written(std::function<void()> writes)
    {
        return [this, writes] {
            remove();
            return time_ns(writes);
        };
    }
    candidate read(std::function<void()> reads)
    {
        return [this, reads] {
            host_view(destination_).wipe(pairs_);
            const double taken = time_ns(reads);
            host_view(destination_).verify(pairs_);
            return taken;
        };
    }

    kv::layout in_memory() const
    {
        kvmem_layout_config config = config_;
        config.alignment = 4096;
        return kv::make_layout(config);
    }

    uint64_t per_call(calls by) const { return std::min<uint64_t>(by.bytes / block_bytes_, pairs_.size()); }

    void remove()
    {
        uint64_t removed = 0;
        kv::call(kvmem_store_remove, store_.get(), keys_.data(), key_size, pairs_.size(), KVMEM_TIMEOUT_FOREVER, &removed);
    }

    static void end_first(std::deque<kv::transfer> &in_flight)
    {
        kv::call(kvmem_transfer_wait, in_flight.front().get(), KVMEM_TIMEOUT_FOREVER);
        in_flight.pop_front();
    }

    template <typename Move>
    void move(Move call, calls by, const kv::layout &memory, uint32_t kvmem_block_pair::*side)
    {
        const uint64_t each = per_call(by);
        std::deque<kv::transfer> in_flight;
        std::vector<uint32_t> ids(each);
        for (uint64_t first = 0; first + each <= pairs_.size(); first += each) {
            for (uint64_t i = 0; i < each; ++i)
                ids[i] = pairs_[first + i].*side;
            kvmem_store_blocks blocks{};
            blocks.struct_size = sizeof blocks;
            blocks.keys = keys_.data() + first * key_size;
            blocks.key_size = key_size;
            blocks.num_keys = blocks.num_blocks = each;
            blocks.blocks = ids.data();
            if (in_flight.size() == by.in_flight)
                end_first(in_flight);
            kvmem_transfer *started = nullptr;
            size_t moved = 0;
            kv::call(call, store_.get(), memory.get(), nullptr, &blocks, &started, &moved);
            in_flight.emplace_back(started);
            if (moved != each)
                throw std::runtime_error("the store moved other blocks");
        }
        while (!in_flight.empty())
            end_first(in_flight);
    }

    int opened(const char *name, int flags) const
    {
        const int file = open(folder_.file(name).c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
        if (file < 0)
            throw std::system_error(errno, std::generic_category(), name);
        return file;
    }

    static void sync(int file)
    {
        if (fdatasync(file) != 0)
            throw std::system_error(errno, std::generic_category(), "fdatasync");
    }

    void append_records(uint64_t blocks)
    {
        const std::vector<char> records(blocks * record_size, 'r');
        if (write(records_, records.data(), records.size()) != static_cast<ssize_t>(records.size()))
            throw std::system_error(errno, std::generic_category(), "write of records");
        sync(records_);
    }

    std::shared_ptr<uring::ring> ring_for(calls by) const
    {
        return std::make_shared<uring::ring>(static_cast<unsigned>(std::min<uint64_t>(max_requests, by.in_flight * per_call(by))));
    }

    // With several calls in flight it is one transfer of all, with as many requests in flight as the calls have.
    void move_bare(uring::ring &ring, bool writes, calls by, unsigned syncs, const kv::layout &memory, uint32_t kvmem_block_pair::*side)
    {
        const host_view view(memory);
        const uint64_t each = by.in_flight == 1 ? per_call(by) : pairs_.size();
        std::vector<nixl::file_piece> pieces(each);
        for (uint64_t first = 0; first + each <= pairs_.size(); first += each) {
            for (uint64_t i = 0; i < each; ++i)
                pieces[i] = {reinterpret_cast<uintptr_t>(view.piece(pairs_[first + i].*side, 0, 0)),
                             (first + i) * block_bytes_, static_cast<size_t>(block_bytes_)};
            ring.transfer(file_, writes, pieces);
            if (syncs > 0)
                sync(file_);
            if (syncs > 1)
                append_records(each);
        }
    }

    uint64_t block_bytes_;
    kvmem_layout_config config_;
    folder folder_;
    kv::layout source_, destination_;
    store store_;
    std::vector<unsigned char> keys_;
    kv::pairs pairs_;
    int file_, records_;
};

void measure_moves(const options &chosen, uint64_t block_bytes, uint32_t durability, results &found)
{
    const uint64_t total = chosen.quick ? 16 << 20 : 128 << 20;
    const bool is_strict = durability == KVMEM_DURABILITY_STRICT;
    const std::string size = std::to_string(block_bytes >> 10) + " KiB", durable = is_strict ? "strict" : "none";
    if (!has_one_of(size + ", " + durable, chosen.only))
        return;
    stored_blocks blocks(block_bytes, total / block_bytes, durability);
    const std::string reference = "io_uring on the same file";
    // The first of `ways` is that of kvmem.
    const auto add = [&](const std::string &way, calls by, const std::vector<candidate> &ways,
                         const std::vector<std::string> &references) {
        const std::vector<samples> taken = alternate(chosen.rounds(15), ways);
        const std::string named = by.bytes == small_calls.bytes ? way : way + ", calls of 64 MiB";
        const auto rate = [&](const samples &durations) { return rates(static_cast<double>(total), durations); };
        for (size_t i = 0; i < references.size(); ++i)
            found.add({"22-store",
                       {{"way", named}, {"calls", by.in_flight}, {"block", size}, {"durability", durable}},
                       rate(taken[0]), references[i], rate(taken[i + 1]), {}, "GB/s"});
    };
    // Puts leave a store without the blocks.
    if (!is_strict)
        for (const calls by : all_calls)
            add("get", by, {blocks.get(by), blocks.read_bare(by)}, {reference});
    for (const calls by : all_calls)
        if (!is_strict)
            add("put", by, {blocks.put(by), blocks.written_bare(by, 0)}, {reference});
        else if (by.in_flight == 1)
            add("put", by, {blocks.put(by), blocks.written_bare(by, 1), blocks.written_bare(by, 2)},
                {reference + ", and fdatasync", reference + ", fdatasync, records, and fdatasync"});
}

// ---- keys ----

void measure_keys(const options &chosen, results &found)
{
    const size_t slots = chosen.quick ? 10000 : 1000000;
    const folder folder;
    const std::vector<unsigned char> keys = random_keys(slots);
    store opened = open_store(folder, slots);
    fill(opened, keys);
    std::unordered_set<std::string_view> set;
    for (size_t i = 0; i < slots; ++i)
        set.insert({reinterpret_cast<const char *>(keys.data()) + i * key_size, key_size});
    for (const size_t count : {size_t{16}, size_t{1024}}) {
        const std::vector<samples> taken =
            alternate(chosen.rounds(11), {looked_up(opened, keys, count), looked_up_in_set(set, keys)});
        found.add({"22-store", {{"way", "contains"}, {"keys", std::to_string(count)}}, taken[0],
                   "std::unordered_set", taken[1], {}, "ns"});
    }
    opened.reset();
    const candidate open = [&] { return time_ns([&] { open_store(folder, slots); }); };
    const candidate read = [&] {
        return time_ns([&] {
            std::ifstream file(folder.file("index.0"), std::ios::binary);
            std::vector<char> part(1 << 20);
            while (file.read(part.data(), static_cast<std::streamsize>(part.size()))) {
            }
        });
    };
    const std::vector<samples> taken = alternate(chosen.rounds(11), {open, read});
    found.add({"22-store", {{"way", "open"}, {"slots", std::to_string(slots)}}, taken[0], "reading the index", taken[1],
               {}, "ns"});
}

void measure(const options &chosen, results &found)
{
    for (const uint32_t durability : {KVMEM_DURABILITY_NONE, KVMEM_DURABILITY_STRICT})
        for (const uint64_t block_bytes : {16u << 10, 64u << 10, 256u << 10, 1u << 20})
            measure_moves(chosen, block_bytes, durability, found);
    if (has_one_of("keys", chosen.only))
        measure_keys(chosen, found);
}

} // namespace

int main(int argc, char **argv)
{
    return bench::run_program(argc, argv, measure);
}
