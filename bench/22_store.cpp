// SPDX-License-Identifier: Apache-2.0
// Row 22: keys that are looked up in a store, and the opening of a store with a million blocks, which reads its index.
#include "common/clock.hpp"
#include "common/kv.hpp"
#include "common/program.hpp"

#include <kvmem/store.h>

#include <fstream>
#include <random>
#include <string_view>
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
        for (const char *name : {"store", "index.0", "blocks.0", "writer"})
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

store open_store(const folder &folder, uint64_t slots)
{
    const kvmem_layout_config config = shape(slots);
    kvmem_store_options options{};
    options.struct_size = sizeof options;
    options.path = folder.path.c_str();
    options.config = &config;
    options.durability = KVMEM_DURABILITY_NONE;
    options.flags = KVMEM_DISK_BUFFERED;
    return kv::make<store>(kvmem_store_open, &options, KVMEM_TIMEOUT_FOREVER);
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

void measure(const options &chosen, results &found)
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

} // namespace

int main(int argc, char **argv)
{
    return bench::run_program(argc, argv, measure);
}
