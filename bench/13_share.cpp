// SPDX-License-Identifier: Apache-2.0
// Row 13: the time to share an elastic region until the other process can use it, against the bare driver calls.
#include "common/clock.hpp"
#include "common/gpu.hpp"
#include "common/kv.hpp"
#include "common/peer.hpp"
#include "common/points.hpp"
#include "reference/fd_passing.hpp"
#include "reference/vmm_share.hpp"

#include <functional>
#include <stdexcept>

namespace {

using namespace bench;

constexpr int device = 0;

struct shape {
    uint64_t extents;
    uint64_t extent_size;
    uint64_t size() const { return extents * extent_size; }
};

// The first message to the peer. The share follows, or the file descriptors of the extents.
struct announcement {
    uint64_t by_kvmem;
    shape shared;
};

uint64_t address_of(const kv::region &memory)
{
    kvmem_region_info info{};
    kv::call(kvmem_region_get_info, memory.get(), &info);
    return info.address;
}

// ---- the process that opens ---------------------------------------------------------------------------------------

// Throws unless every extent has the value at its start and at its end.
void verify(cuda::address base, const shape &shared, unsigned char value)
{
    for (uint64_t extent = 0; extent < shared.extents; ++extent)
        for (uint64_t offset : {uint64_t{0}, shared.extent_size - sizeof(uint64_t)}) {
            uint64_t word = 0;
            const cuda::address place = base + extent * shared.extent_size + offset;
            cuda::check(cuda::load().copy(reinterpret_cast<cuda::address>(&word), place, sizeof word),
                        "cuMemcpy");
            if (word != value * 0x0101010101010101u)
                throw std::runtime_error("extent " + std::to_string(extent) + " has other bytes");
        }
}

// Reports that the memory can be used, receives a value, and checks that the extents have it.
void use(channel &link, cuda::address base, const shape &shared)
{
    send_value(link, true);
    verify(base, shared, value_of<unsigned char>(link.receive()));
}

void open_by_kvmem(channel &link, const announcement &announced)
{
    const kv::share received = link.receive_share();
    const auto opened = kv::make<kv::region>(kvmem_share_open_region, received.get(),
                                             static_cast<kvmem_open_options *>(nullptr));
    use(link, address_of(opened), announced.shared);
}

void open_by_driver(channel &link, const announcement &announced)
{
    const cuda::extents opened(device, reference::receive_fds(link.fd(), announced.shared.extents),
                               announced.shared.extent_size);
    use(link, opened.base(), announced.shared);
}

void open_announced(const std::vector<std::string> &)
{
    const cuda::current_device current(device);
    channel link = parent_channel();
    while (const auto message = link.receive_or_end()) {
        const auto announced = value_of<announcement>(*message);
        if (announced.by_kvmem != 0)
            open_by_kvmem(link, announced);
        else
            open_by_driver(link, announced);
        send_value(link, true); // the memory is closed
    }
}

// ---- the process that shares --------------------------------------------------------------------------------------

struct times {
    samples sent; // milliseconds until the share is sent
    samples ready; // milliseconds until the other process can use it
};

kv::region make_elastic(const shape &measured)
{
    kvmem_elastic_options options{};
    options.struct_size = sizeof options;
    options.size = measured.size();
    options.extent_size = measured.extent_size;
    options.device = device;
    auto made = kv::make<kv::region>(kvmem_region_create_elastic, &options);
    kv::call(kvmem_region_commit, made.get(), uint64_t{0}, measured.size());
    return made;
}

// Sends the memory. Returns the share, which must exist until the other process has opened it, or NULL.
using sender = std::function<std::shared_ptr<void>(channel &)>;

sender by_kvmem(const kv::region &memory, const shape &measured)
{
    return [&memory, measured](channel &link) -> std::shared_ptr<void> {
        auto made = kv::make<kv::share>(kvmem_share_create_region, memory.get(),
                                        static_cast<kvmem_share_options *>(nullptr));
        send_value(link, announcement{1, measured});
        link.send_share(made);
        return std::shared_ptr<kvmem_share>(std::move(made));
    };
}

sender by_driver(const cuda::extents &memory, const shape &measured)
{
    return [&memory, measured](channel &link) -> std::shared_ptr<void> {
        const std::vector<int> fds = memory.export_fds();
        send_value(link, announcement{0, measured});
        reference::send_fds(link.fd(), fds);
        reference::close_all(fds);
        return nullptr;
    };
}

void take_turn(channel &link, const sender &send, cuda::address base, const shape &measured,
               unsigned char value, times &taken)
{
    cuda::check(cuda::load().fill(base, value, measured.size()), "cuMemsetD8");
    cuda::check(cuda::load().context_synchronize(), "cuCtxSynchronize");
    const double start = now_ns();
    const std::shared_ptr<void> in_transit = send(link);
    const double sent = now_ns();
    value_of<bool>(link.receive());
    taken.ready.push_back((now_ns() - start) * 1e-6);
    taken.sent.push_back((sent - start) * 1e-6);
    send_value(link, value);
    value_of<bool>(link.receive());
}

void measure_shape(const options &chosen, const shape &measured, results &found)
{
    const kv::region ours = make_elastic(measured);
    const cuda::extents theirs(device, measured.extents, measured.extent_size);
    const sender send_ours = by_kvmem(ours, measured);
    const sender send_theirs = by_driver(theirs, measured);
    peer other({});
    times of_ours, of_theirs;
    for (int round = -1; round < chosen.rounds(21); ++round) {
        if (round == 0)
            of_ours = of_theirs = {};
        const auto value = static_cast<unsigned char>(2 * round + 3);
        take_turn(other.link(), send_ours, address_of(ours), measured, value, of_ours);
        take_turn(other.link(), send_theirs, theirs.base(), measured, static_cast<unsigned char>(value + 1),
                  of_theirs);
    }
    const auto add = [&](const char *timed, const samples &ours_ms, const samples &theirs_ms) {
        found.add({"13-share",
                   {{"extents", measured.extents},
                    {"extent_MiB", measured.extent_size >> 20},
                    {"timed", timed},
                    {"gpu", gpu_description(device)}},
                   ours_ms,
                   "the bare driver calls",
                   theirs_ms,
                   {},
                   "ms"});
    };
    add("until the other process may use it", of_ours.ready, of_theirs.ready);
    add("until it is sent", of_ours.sent, of_theirs.sent);
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    points points(chosen);
    const uint64_t mib = 1 << 20;
    for (const shape &measured :
         {shape{64, (chosen.quick ? 2 : 64) * mib}, shape{8, (chosen.quick ? 2 : 64) * mib}})
        points.measure(std::to_string(measured.extents) + " extents of " +
                           std::to_string(measured.extent_size >> 20) + " MiB",
                       [&] { measure_shape(chosen, measured, found); });
    points.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, open_announced); }
