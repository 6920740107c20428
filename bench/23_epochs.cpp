// SPDX-License-Identifier: Apache-2.0
// Row 23: reads of scattered blocks of 16 KiB that expect epochs, against the same reads without, in turn.
#include "common/block_ids.hpp"
#include "common/pattern.hpp"
#include "common/program.hpp"

namespace {

using namespace bench;

constexpr uint64_t block_bytes = 16 << 10;
constexpr uint32_t spread = 4; // blocks of the owner per block that is read

// An owner's layout with epochs, and as a reader in this process sees it.
struct both {
    kv::agent owner;
    kv::agent reader;
    kv::layout owned;
    kv::layout own;
    kv::layout imported;

    explicit both(uint32_t blocks) : owner(kv::make_agent("owner")), reader(kv::make_agent("reader"))
    {
        const kvmem_layout_config config = whole_blocks(block_bytes, blocks * spread);
        owned = kv::make_layout(config, owner.get());
        own = kv::make_layout(config, reader.get());
        kv::call(kvmem_layout_create_epochs, owned.get(), nullptr);
        host_view(owned).fill();
        const auto metadata = kv::make<kv::blob>(kvmem_agent_get_local_metadata, owner.get());
        kv::call(kvmem_agent_load_remote_metadata, reader.get(), kvmem_blob_data(metadata.get()),
                 kvmem_blob_size(metadata.get()), nullptr);
        const auto descriptor = kv::make<kv::blob>(kvmem_layout_export, owned.get());
        imported = kv::make<kv::layout>(kvmem_layout_import, reader.get(), kvmem_blob_data(descriptor.get()),
                                        kvmem_blob_size(descriptor.get()));
    }
};

// One step of an engine: other blocks are submitted, and awaited.
candidate step(const kv::transfer &transfer, const host_view &to, const kv::pairs &pairs, const uint64_t *epochs)
{
    return checked(to, pairs, [&transfer, &pairs, epochs] {
        kvmem_submit_options run{};
        run.struct_size = sizeof run;
        run.pairs = pairs.data();
        run.num_pairs = pairs.size();
        run.epochs = epochs;
        kv::call(kvmem_transfer_submit, transfer.get(), &run);
        kv::wait(transfer);
    });
}

void measure_path(const options &chosen, const both &sides, const kv::layout &from, const char *path, const kv::pairs &pairs,
                  results &found)
{
    const auto transfer = kv::make<kv::transfer>(kvmem_transfer_create, from.get(), sides.own.get(), nullptr);
    const std::vector<uint64_t> epochs(pairs.size());
    const host_view to(sides.own);
    const std::vector<samples> taken = alternate(chosen.rounds(101), {
        step(transfer, to, pairs, epochs.data()),
        step(transfer, to, pairs, nullptr),
    });
    const double bytes = static_cast<double>(block_bytes * pairs.size());
    found.add({"23-epochs",
               {{"way", path}, {"block_bytes", block_bytes}, {"blocks", pairs.size()}},
               rates(bytes, taken[0]),
               "without epochs",
               rates(bytes, taken[1]),
               {},
               "GB/s"});
}

void measure(const options &chosen, results &found)
{
    for (uint32_t blocks : {64, 1024}) {
        const both sides(blocks);
        const kv::pairs pairs = scattered_pairs(blocks, blocks * spread);
        measure_path(chosen, sides, sides.owned, "host to host", pairs, found);
        measure_path(chosen, sides, sides.imported, "NIXL, one machine", pairs, found);
    }
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
