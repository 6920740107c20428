// SPDX-License-Identifier: Apache-2.0
// Rows 8 and 9 with 1, 8 and 32 peers: the cost of submitting 10,000 blocks of all pools together, and the latency
// until the end of transfers with all peers is seen.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/completion.hpp"
#include "common/many_sides.hpp"
#include "common/peer.hpp"
#include "common/points.hpp"
#include "common/program.hpp"

#include <algorithm>

namespace {

using namespace bench;

constexpr uint32_t blocks = 10'000; // of all peers together
constexpr uint32_t pool = 16'384;
constexpr uint64_t submitted_bytes = 4096; // per block
constexpr uint64_t completed_bytes = 16'384;

constexpr const char *lists_name = "NIXL: lists built, create_xfer_req";
constexpr const char *sorted_name = "NIXL: sorted, make_xfer_req on prepared lists";

using requests = std::vector<std::unique_ptr<nixl::read_request>>;

// NIXL's requests, made by each of the two methods that its users have.
class reference_user {
  public:
    reference_user(const many_sides &sides, uint64_t pool_blocks, const std::string &name, bool progress_thread)
        : sides_(sides), agent_(sides.make_reference(name, progress_thread))
    {
        for (unsigned peer = 0; peer < sides.peers().size(); ++peer) {
            std::vector<nixl::span> here, there;
            for (uint64_t block = 0; block < pool_blocks; ++block) {
                here.push_back(sides.local_block(peer, block));
                there.push_back(sides.remote_block(peer, block));
            }
            local_.push_back(std::make_unique<nixl::prepared>(*agent_, nixl::side::local, here));
            remote_.push_back(std::make_unique<nixl::prepared>(*agent_, there, sides.peers()[peer].reference_name));
        }
    }

    requests from_lists(const kv::pairs &pairs) const
    {
        return of_each([&](unsigned peer) {
            nixl::descriptors here(*agent_), there(*agent_);
            for (const kvmem_block_pair &pair : pairs) {
                here.add(sides_.local_block(peer, pair.destination));
                there.add(sides_.remote_block(peer, pair.source));
            }
            return std::make_unique<nixl::read_request>(*agent_, here, there, sides_.peers()[peer].reference_name);
        });
    }

    // The pairs are sorted, so that NIXL merges the runs.
    requests from_prepared(const kv::pairs &pairs) const
    {
        return of_each([&](unsigned peer) {
            kv::pairs sorted = pairs;
            std::sort(sorted.begin(), sorted.end(),
                      [](const kvmem_block_pair &a, const kvmem_block_pair &b) { return a.source < b.source; });
            std::vector<int> here, there;
            for (const kvmem_block_pair &pair : sorted) {
                here.push_back(static_cast<int>(pair.destination));
                there.push_back(static_cast<int>(pair.source));
            }
            return std::make_unique<nixl::read_request>(*agent_, *local_[peer], here, *remote_[peer], there);
        });
    }

  private:
    template <typename Make> requests of_each(Make make) const
    {
        requests made;
        for (unsigned peer = 0; peer < sides_.peers().size(); ++peer)
            made.push_back(make(peer));
        return made;
    }

    const many_sides &sides_;
    std::unique_ptr<nixl::agent> agent_;
    std::vector<std::unique_ptr<nixl::prepared>> local_, remote_;
};

void post(const requests &all)
{
    for (const auto &each : all)
        each->post();
}

// Polls the requests until all are complete, with `pause` between two polls.
template <typename Pause> void poll(const requests &all, Pause pause)
{
    for (const auto &each : all)
        while (!each->done())
            pause();
}

void post_and_poll(const requests &all)
{
    post(all);
    poll(all, [] {});
}

// kvmem's transfers of the same pairs with every peer.
class transfers {
  public:
    // Each transfer reports its end to the queue if there is one.
    transfers(const many_sides &sides, const kv::pairs &pairs, uint64_t pool_blocks, kvmem_queue *queue = nullptr)
    {
        for (unsigned peer = 0; peer < sides.peers().size(); ++peer) {
            kv::pairs here = pairs;
            for (kvmem_block_pair &pair : here)
                pair.destination += static_cast<uint32_t>(peer * pool_blocks);
            const kv::layout &remote = sides.peers()[peer].remote;
            all_.push_back(queue != nullptr ? kv::make_transfer(remote, sides.local(), here, {queue, 1})
                                            : kv::make_transfer(remote, sides.local(), here));
        }
    }

    void submit() const
    {
        for (const kv::transfer &each : all_)
            kv::submit(each);
    }
    void wait() const
    {
        for (const kv::transfer &each : all_)
            kv::wait(each);
    }
    size_t count() const { return all_.size(); }

  private:
    std::vector<kv::transfer> all_;
};

// The pairs of all peers, with destinations in the local pool.
kv::pairs with_all(const kv::pairs &pairs, uint64_t pool_blocks, size_t num_peers)
{
    kv::pairs all;
    for (size_t peer = 0; peer < num_peers; ++peer)
        for (const kvmem_block_pair &pair : pairs)
            all.push_back({pair.source, pair.destination + static_cast<uint32_t>(peer * pool_blocks)});
    return all;
}

// ---- Row 8 --------------------------------------------------------------------------------------------------------

void measure_pattern(const options &chosen, const many_sides &sides, uint32_t pool_blocks, const char *pattern,
                     uint32_t run, const reference_user &reference, results &found)
{
    const auto num_peers = static_cast<uint32_t>(sides.peers().size());
    const kv::pairs pairs = scattered_pairs(blocks / num_peers, pool_blocks, run);
    const kv::pairs all = with_all(pairs, pool_blocks, num_peers);
    const host_view view = sides.view();
    const auto described = [&](const char *step) {
        return parameters{{"peers", num_peers},       {"block_bytes", submitted_bytes}, {"progress_thread", "off"},
                          {"pattern", pattern},       {"blocks", all.size()},           {"step", step}};
    };

    // The time from the pairs until the calls have returned. The reference only makes its requests: with host memory,
    // posting them would copy the blocks.
    const transfers kept(sides, pairs, pool_blocks);
    const std::vector<samples> calls = alternate(chosen.rounds(51), {
        [&] {
            const double start = now_ns();
            const transfers made(sides, pairs, pool_blocks);
            made.submit();
            const double calling = now_ns() - start;
            made.wait();
            return calling;
        },
        [&] {
            const double submitting = time_ns([&] { kept.submit(); });
            kept.wait();
            return submitting;
        },
        [&] {
            const double start = now_ns();
            const requests made = reference.from_lists(pairs);
            return now_ns() - start;
        },
        [&] {
            const double start = now_ns();
            const requests made = reference.from_prepared(pairs);
            return now_ns() - start;
        },
    });
    view.verify(all);
    const parameters create = described("create, submit");
    found.add({"08-submit", create, in_us(calls[0]), lists_name, in_us(calls[2]), {}, "us"});
    found.add({"08-submit", create, in_us(calls[0]), sorted_name, in_us(calls[3]), {}, "us"});
    found.add({"08-submit", described("submit again"), in_us(calls[1]), lists_name, in_us(calls[2]), {}, "us"});

    const requests kept_reference = reference.from_prepared(pairs);
    const std::vector<samples> moved = alternate(chosen.rounds(15), {
        checked(view, all, [&] {
            const transfers made(sides, pairs, pool_blocks);
            made.submit();
            made.wait();
        }),
        checked(view, all, [&] {
            kept.submit();
            kept.wait();
        }),
        checked(view, all, [&] { post_and_poll(reference.from_lists(pairs)); }),
        checked(view, all, [&] { post_and_poll(reference.from_prepared(pairs)); }),
        checked(view, all, [&] { post_and_poll(kept_reference); }),
    });
    const auto speed = [&](size_t which) { return rates(double(all.size() * submitted_bytes), moved[which]); };
    const parameters whole = described("create, submit, wait");
    found.add({"08-submit", whole, speed(0), lists_name, speed(2), {}, "GB/s"});
    found.add({"08-submit", whole, speed(0), sorted_name, speed(3), {}, "GB/s"});
    found.add({"08-submit", described("submit again, wait"), speed(1),
               "NIXL: the same sorted requests posted again", speed(4), {}, "GB/s"});
}

void measure_submission(const options &chosen, unsigned num_peers, results &found)
{
    const uint32_t pool_blocks = pool / num_peers;
    const many_sides sides(num_peers, {pool_blocks, submitted_bytes}, false);
    const reference_user reference(sides, pool_blocks, "reference", false);
    measure_pattern(chosen, sides, pool_blocks, "scattered", 1, reference, found);
    measure_pattern(chosen, sides, pool_blocks, "runs of 8", 8, reference, found);
}

// ---- Row 9 --------------------------------------------------------------------------------------------------------

// The duration of transfers with all peers at once, until the end of the last one is seen.
void measure_size(const options &chosen, const many_sides &sides, uint64_t pool_blocks, const char *transport,
                  uint32_t count, const reference_user &raw, const reference_user &polled, results &found)
{
    const size_t num_peers = sides.peers().size();
    const kv::queue queue = kv::make<kv::queue>(kvmem_queue_create);
    int32_t fd = -1;
    kv::call(kvmem_queue_get_fd, queue.get(), &fd);
    const kv::pairs pairs = first_blocks(count);
    const kv::pairs all = with_all(pairs, pool_blocks, num_peers);
    const transfers plain(sides, pairs, pool_blocks);
    const transfers queued(sides, pairs, pool_blocks, queue.get());
    const requests raw_requests = raw.from_prepared(pairs);
    const requests polled_requests = polled.from_prepared(pairs);
    const host_view view = sides.view();

    // As many transfers per series for every number of peers.
    const size_t length = std::max<size_t>(20, (chosen.quick ? 40 : 500) / num_peers);
    const int series = chosen.quick ? 2 : 5;
    const std::vector<samples> taken = alternate(static_cast<int>(length) * series, {
        checked(view, all, [&] { post_and_poll(raw_requests); }),
        checked(view, all, [&] {
            plain.submit();
            plain.wait();
        }),
        checked(view, all, [&] {
            queued.submit();
            for (size_t end = 0; end < queued.count(); ++end)
                wait_on_queue(queue.get());
        }),
        checked(view, all, [&] {
            queued.submit();
            for (size_t end = 0; end < queued.count(); ++end)
                wait_on_fd(queue.get(), fd);
        }),
        checked(view, all, [&] {
            post(polled_requests);
            poll(polled_requests, sleep_1_ms);
        }),
    });

    const parameters point = {{"transport", transport}, {"peers", num_peers}, {"bytes", count * completed_bytes}};
    add_completion_rows(found, point, taken, length);
}

void measure_completion(const options &chosen, unsigned num_peers, const char *transport, results &found)
{
    constexpr uint64_t pool_blocks = 64;
    const many_sides sides(num_peers, {pool_blocks, completed_bytes}, true);
    // Polling without pause is faster without NIXL's progress thread; polling every 1 ms needs it.
    const reference_user raw(sides, pool_blocks, "raw-initiator", false);
    const reference_user polled(sides, pool_blocks, "polled-initiator", true);
    for (uint32_t count : {1u, 64u})
        measure_size(chosen, sides, pool_blocks, transport, count, raw, polled, found);
}

void measure(const options &chosen, results &found)
{
    points wanted(chosen);
    const auto of_each_number = [&](const std::string &what, const auto &measure_with) {
        for (unsigned num_peers : {1u, 8u, 32u})
            wanted.measure(what + ", " + std::to_string(num_peers) + " peers", [&] { measure_with(num_peers); });
    };
    of_each_number("submission", [&](unsigned num_peers) { measure_submission(chosen, num_peers, found); });
    const auto completion = [&](const char *transport) {
        of_each_number(std::string("completion, ") + transport, [&](unsigned num_peers) {
            measure_completion(chosen, num_peers, transport, found);
        });
    };
    completion("shared memory");
    use_only_tcp();
    completion("tcp");
    wanted.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, bench::serve_pool); }
