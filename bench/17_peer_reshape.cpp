// SPDX-License-Identifier: Apache-2.0
// Row 17: scattered blocks of a peer, and tokens resharded for another degree of tensor parallelism, over NIXL. The
// reference is a descriptor per row, the ceiling one contiguous transfer of the useful bytes.
#include "common/clock.hpp"
#include "common/peer.hpp"
#include "common/points.hpp"
#include "common/program.hpp"
#include "reference/nixl.hpp"

#include <memory>
#include <numeric>

namespace {

using namespace bench;

constexpr uint64_t layers = 4;
constexpr uint64_t outers = 2;
constexpr uint64_t page = 16;
constexpr uint64_t row_bytes = 256; // one head of one token

// The layouts of one rank on each side, and the heads that move.
struct difference {
    const char *name;
    const char *from_order;
    uint64_t from_heads;
    const char *to_order;
    uint64_t to_heads;
    uint64_t source_head;
    uint64_t destination_head;
    uint64_t heads;
};

constexpr difference differences[] = {
    {"scattered blocks, fully contiguous to layer separate", "BLONHC", 4, "L/OBNHC", 4, 0, 0, 4},
    {"TP 2 to 4, NHD", "L/OBNHC", 4, "L/OBNHC", 2, 2, 0, 2},
    {"TP 4 to 2, NHD", "L/OBNHC", 2, "L/OBNHC", 4, 0, 2, 2},
    {"HND to NHD", "L/OBHNC", 4, "L/OBNHC", 4, 0, 0, 4},
};

kvmem_layout_config config_of(const char *order, uint64_t heads, uint64_t blocks)
{
    kvmem_layout_config config{};
    config.struct_size = sizeof config;
    config.num_blocks = blocks;
    config.num_layers = layers;
    config.outer_dim = outers;
    config.page_size = page;
    config.num_heads = heads;
    config.inner_dim = heads * row_bytes / 2;
    config.dtype_width = 2;
    config.order = order;
    return config;
}

// Address and size of a row.
nixl::span row_of(const kv::layout &layout, uint32_t block, uint64_t layer, uint64_t outer, uint64_t token,
                  uint64_t head)
{
    kvmem_block row;
    kv::call(kvmem_layout_get_row, layout.get(), block, layer, outer, token, head, &row);
    return {static_cast<uintptr_t>(row.address), static_cast<size_t>(row.size)};
}

uint64_t word_of(uint64_t block, uint64_t layer, uint64_t outer, uint64_t token, uint64_t head)
{
    return ((((block * layers + layer) * outers + outer) * page + token) * 16 + head) * 64 + 1;
}

template <typename Visit> void each_place(Visit &&visit)
{
    for (uint64_t layer = 0; layer < layers; ++layer)
        for (uint64_t outer = 0; outer < outers; ++outer)
            for (uint64_t token = 0; token < page; ++token)
                visit(layer, outer, token);
}

void fill(const kv::layout &layout, uint64_t blocks, uint64_t heads)
{
    for (uint32_t block = 0; block < blocks; ++block)
        each_place([&](uint64_t layer, uint64_t outer, uint64_t token) {
            for (uint64_t head = 0; head < heads; ++head) {
                auto *words = reinterpret_cast<uint64_t *>(row_of(layout, block, layer, outer, token, head).address);
                for (uint64_t word = 0; word < row_bytes / 8; ++word)
                    words[word] = word_of(block, layer, outer, token, head) + word;
            }
        });
}

// Registers all regions of a layout and a plain buffer with the reference.
void add_memory(nixl::agent &reference, const kv::layout &layout, const kvmem_layout_config &config,
                const std::vector<uint64_t> &plain)
{
    kvmem_layout_info strides;
    kv::call(kvmem_layout_get_info, layout.get(), &strides);
    kvmem_layout_requirements needs;
    kv::call(kvmem_layout_get_requirements, &config, &needs);
    for (uint64_t region = 0; region < strides.num_regions; ++region)
        reference.add_memory({static_cast<uintptr_t>(strides.bases[region]), needs.region_size});
    reference.add_memory({reinterpret_cast<uintptr_t>(plain.data()), plain.size() * 8});
}

void send(channel &link, const kv::blob &bytes)
{
    link.send(kvmem_blob_data(bytes.get()), kvmem_blob_size(bytes.get()));
}

// In the peer: serves the source until the bench is done.
void serve(const std::vector<std::string> &arguments)
{
    const difference &shape = differences[std::stoull(arguments.at(0))];
    const uint64_t blocks = std::stoull(arguments.at(1));
    channel link = parent_channel();
    const kvmem_layout_config config = config_of(shape.from_order, shape.from_heads, blocks);
    const kv::agent agent = kv::make_agent("owner");
    const kv::layout source = kv::make_layout(config, agent.get());
    kv::call(kvmem_layout_serve, source.get(), nullptr);
    fill(source, blocks, shape.from_heads);
    const std::vector<uint64_t> plain(std::stoull(arguments.at(2)) / 8, 7);
    nixl::agent reference("reference-owner");
    add_memory(reference, source, config, plain);
    send(link, kv::make<kv::blob>(kvmem_agent_get_local_metadata, agent.get()));
    send(link, kv::make<kv::blob>(kvmem_layout_export, source.get()));
    link.send(reference.metadata());
    send_value(link, reinterpret_cast<uintptr_t>(plain.data()));
    link.receive_or_end();
}

kv::pairs scattered(uint64_t blocks)
{
    uint64_t step = blocks / 3 + 1;
    while (std::gcd(step, blocks) != 1)
        ++step;
    kv::pairs pairs;
    for (uint64_t i = 0; i < blocks; ++i)
        pairs.push_back({static_cast<uint32_t>(i * step % blocks), static_cast<uint32_t>(i)});
    return pairs;
}

// Both processes, and the methods to move the same bytes.
class exchange {
  public:
    exchange(size_t which, uint64_t blocks)
        : shape_(differences[which]), blocks_(blocks),
          bytes_(blocks * layers * outers * page * shape_.heads * row_bytes),
          peer_({std::to_string(which), std::to_string(blocks), std::to_string(bytes_)}),
          agent_(kv::make_agent("requester")), config_(config_of(shape_.to_order, shape_.to_heads, blocks)),
          local_(kv::make_layout(config_, agent_.get())), plain_(bytes_ / 8), pairs_(scattered(blocks)),
          reference_("reference-requester")
    {
        channel &link = peer_.link();
        const nixl::bytes metadata = link.receive();
        const nixl::bytes descriptor = link.receive();
        const nixl::bytes reference_metadata = link.receive();
        const auto remote_plain = value_of<uintptr_t>(link.receive());
        kv::call(kvmem_agent_load_remote_metadata, agent_.get(), metadata.data(), metadata.size(), nullptr);
        remote_ = kv::make<kv::layout>(kvmem_layout_import, agent_.get(), descriptor.data(), descriptor.size());
        add_memory(reference_, local_, config_, plain_);
        reference_.load_peer(reference_metadata);
        make_rows();
        make_whole(remote_plain);
    }

    uint64_t bytes() const { return bytes_; }
    nixl::read_request &rows() { return *rows_; }
    nixl::read_request &whole() { return *whole_; }

    kv::transfer make(uint32_t path) const
    {
        kv::job wanted = kv::job_of(pairs_, {}, {});
        wanted.transfer.method = path;
        wanted.transfer.source_head = shape_.source_head;
        wanted.transfer.destination_head = shape_.destination_head;
        wanted.transfer.num_heads = shape_.heads;
        return kv::prepared(remote_, local_, wanted);
    }

    // Throws unless `run` moves every byte into cleared memory.
    template <typename Run> void verify(Run &&run) const
    {
        each_moved([](uint64_t *words, uint64_t) { std::fill(words, words + row_bytes / 8, 0); });
        run();
        each_moved([](const uint64_t *words, uint64_t expected) {
            for (uint64_t word = 0; word < row_bytes / 8; ++word)
                if (words[word] != expected + word)
                    throw std::runtime_error("a row arrived with other bytes");
        });
    }

  private:
    template <typename Visit> void each_moved(Visit &&visit) const
    {
        for (const kvmem_block_pair &pair : pairs_)
            each_place([&](uint64_t layer, uint64_t outer, uint64_t token) {
                for (uint64_t head = 0; head < shape_.heads; ++head) {
                    const nixl::span row = row_of(local_, pair.destination, layer, outer, token,
                                                  shape_.destination_head + head);
                    visit(reinterpret_cast<uint64_t *>(row.address),
                          word_of(pair.source, layer, outer, token, shape_.source_head + head));
                }
            });
    }

    // A descriptor per range that is contiguous on both sides: all heads of a token if they are adjacent.
    void make_rows()
    {
        nixl::descriptors here(reference_);
        nixl::descriptors there(reference_);
        nixl::span last_here{0, 0};
        nixl::span last_there{0, 0};
        const auto flush = [&] {
            if (last_here.size > 0) {
                here.add(last_here);
                there.add(last_there);
            }
        };
        for (const kvmem_block_pair &pair : pairs_)
            each_place([&](uint64_t layer, uint64_t outer, uint64_t token) {
                for (uint64_t head = 0; head < shape_.heads; ++head) {
                    const nixl::span to =
                        row_of(local_, pair.destination, layer, outer, token, shape_.destination_head + head);
                    const nixl::span from =
                        row_of(remote_, pair.source, layer, outer, token, shape_.source_head + head);
                    if (last_here.address + last_here.size == to.address &&
                        last_there.address + last_there.size == from.address) {
                        last_here.size += to.size;
                        last_there.size += from.size;
                        continue;
                    }
                    flush();
                    last_here = to;
                    last_there = from;
                }
            });
        flush();
        rows_ = std::make_unique<nixl::read_request>(reference_, here, there);
    }

    void make_whole(uintptr_t remote_plain)
    {
        nixl::descriptors here(reference_);
        nixl::descriptors there(reference_);
        here.add({reinterpret_cast<uintptr_t>(plain_.data()), bytes_});
        there.add({remote_plain, bytes_});
        whole_ = std::make_unique<nixl::read_request>(reference_, here, there);
    }

    const difference &shape_;
    uint64_t blocks_;
    uint64_t bytes_;
    peer peer_;
    kv::agent agent_;
    kvmem_layout_config config_;
    kv::layout local_;
    std::vector<uint64_t> plain_;
    kv::pairs pairs_;
    nixl::agent reference_;
    kv::layout remote_;
    std::unique_ptr<nixl::read_request> rows_;
    std::unique_ptr<nixl::read_request> whole_;
};

void measure_case(const options &chosen, const char *transport, size_t which, results &found)
{
    const uint64_t total = chosen.quick ? 8 << 20 : 64 << 20;
    exchange both(which, total / (layers * outers * page * differences[which].heads * row_bytes));
    const kv::transfer staged = both.make(KVMEM_METHOD_NIXL_STAGED);
    const kv::transfer served = both.make(KVMEM_METHOD_NIXL_SERVED);
    both.verify([&] { kv::submit_and_wait(staged); });
    both.verify([&] { kv::submit_and_wait(served); });
    both.verify([&] { both.rows().post_and_poll(); });
    const std::vector<samples> taken = alternate(chosen.rounds(15), {
        [&] { return time_ns([&] { kv::submit_and_wait(staged); }); },
        [&] { return time_ns([&] { both.rows().post_and_poll(); }); },
        [&] { return time_ns([&] { both.whole().post_and_poll(); }); },
        [&] { return time_ns([&] { kv::submit_and_wait(served); }); },
    });
    // These runs have measured the costs, so this is the path that a caller without a preference gets.
    const kv::transfer free = both.make(0);
    kvmem_transfer_info info;
    kv::call(kvmem_transfer_get_info, free.get(), &info);
    const auto speed = [&](size_t method) { return rates(static_cast<double>(both.bytes()), taken[method]); };
    for (const auto &[path, method] : {std::pair{KVMEM_METHOD_NIXL_STAGED, 0}, std::pair{KVMEM_METHOD_NIXL_SERVED, 3}})
        found.add({"17-peer-reshape",
                   {{"difference", differences[which].name},
                    {"transport", transport},
                    {"path", kvmem_method_name(path)},
                    {"chosen", kvmem_method_name(info.method)},
                    {"bytes", both.bytes()},
                    {"ceiling_is", "one contiguous transfer of the useful bytes"}},
                   speed(method),
                   "NIXL: a descriptor per row",
                   speed(1),
                   speed(2),
                   "GB/s"});
}

void measure(const options &chosen, results &found)
{
    points grid(chosen);
    for (const char *transport : {"shared memory", "tcp"}) {
        if (transport == std::string("tcp"))
            use_only_tcp();
        for (size_t which = 0; which < std::size(differences); ++which)
            grid.measure(std::string(differences[which].name) + ", " + transport,
                         [&] { measure_case(chosen, transport, which, found); });
    }
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, serve); }
