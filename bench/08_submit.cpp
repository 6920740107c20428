// SPDX-License-Identifier: Apache-2.0
// Row 8: the duration of the calls that submit 10,000 blocks to a remote peer, and the throughput of the transfers.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/program.hpp"
#include "common/two_sides.hpp"

#include <algorithm>

namespace {

using namespace bench;

constexpr uint32_t blocks = 10'000;
constexpr uint32_t pool = 16'384;

constexpr const char *lists_name = "NIXL: lists built, create_xfer_req";
constexpr const char *sorted_name = "NIXL: sorted, make_xfer_req on prepared lists";

// NIXL's requests, made by each of the two methods that its users have.
class reference_user {
  public:
    explicit reference_user(const two_sides &sides)
        : sides_(sides), local_(sides.reference(), nixl::side::local, sides.local_blocks()),
          remote_(sides.reference(), nixl::side::remote, sides.remote_blocks())
    {
    }

    // Lists of exactly the blocks that move, then create_xfer_req.
    nixl::read_request from_lists(const kv::pairs &pairs) const
    {
        nixl::descriptors local(sides_.reference());
        nixl::descriptors remote(sides_.reference());
        for (const kvmem_block_pair &pair : pairs) {
            local.add(sides_.local_block(pair.destination));
            remote.add(sides_.remote_block(pair.source));
        }
        return nixl::read_request(sides_.reference(), local, remote);
    }

    // Indices into lists of all blocks, which are prepared once. They are sorted, so that NIXL merges the runs.
    nixl::read_request from_prepared(const kv::pairs &pairs) const
    {
        kv::pairs sorted = pairs;
        std::sort(sorted.begin(), sorted.end(),
                  [](const kvmem_block_pair &a, const kvmem_block_pair &b) { return a.source < b.source; });
        std::vector<int> local_ids;
        std::vector<int> remote_ids;
        local_ids.reserve(sorted.size());
        remote_ids.reserve(sorted.size());
        for (const kvmem_block_pair &pair : sorted) {
            local_ids.push_back(static_cast<int>(pair.destination));
            remote_ids.push_back(static_cast<int>(pair.source));
        }
        return nixl::read_request(sides_.reference(), local_, local_ids, remote_, remote_ids);
    }

  private:
    const two_sides &sides_;
    nixl::prepared local_;
    nixl::prepared remote_;
};

struct pattern {
    const char *name;
    uint32_t run;
    bool shuffled; // the pairs are in random order, not run by run
};

kv::pairs pairs_of(const pattern &chosen)
{
    kv::pairs pairs = scattered_pairs(blocks, pool, chosen.run);
    if (chosen.shuffled) {
        std::mt19937 random(8);
        std::shuffle(pairs.begin(), pairs.end(), random);
    }
    return pairs;
}

// The measurements of one pattern of blocks between two pools.
class submission {
  public:
    submission(const options &chosen, const two_sides &sides, const reference_user &reference,
               const pattern &shape, const parameters &setting)
        : chosen_(chosen), sides_(sides), reference_(reference), pairs_(pairs_of(shape)), setting_(setting)
    {
        setting_.emplace_back("pattern", shape.name);
        setting_.emplace_back("blocks", blocks);
    }

    // The time from the pairs until the calls have returned; the blocks move after that. The reference only makes its
    // request: with host memory, posting it would copy the blocks.
    void measure_calls(results &found) const
    {
        const std::vector<samples> taken = alternate(chosen_.rounds(101), {
            [&] {
                kv::transfer made;
                const double calling = time_ns([&] {
                    made = create();
                    kv::submit(made);
                });
                kv::wait(made);
                return calling;
            },
            creation_from_lists(),
            [&] {
                const double start = now_ns();
                const nixl::read_request made = reference_.from_prepared(pairs_);
                return now_ns() - start;
            },
        });
        sides_.view().verify(pairs_);
        const parameters as = described("create, submit");
        found.add({"08-submit", as, in_us(taken[0]), lists_name, in_us(taken[1]), {}, "us"});
        found.add({"08-submit", as, in_us(taken[0]), sorted_name, in_us(taken[2]), {}, "us"});
    }

    // The time to submit the same transfer again.
    void measure_repeat(results &found) const
    {
        const kv::transfer again = create();
        const std::vector<samples> taken = alternate(chosen_.rounds(101), {
            [&] {
                const double submitting = time_ns([&] { kv::submit(again); });
                kv::wait(again);
                return submitting;
            },
            creation_from_lists(),
        });
        sides_.view().verify(pairs_);
        found.add({"08-submit", described("submit again"), in_us(taken[0]), lists_name, in_us(taken[1]), {},
                   "us"});
    }

    void measure_throughput(uint64_t block_bytes, results &found) const
    {
        const kv::transfer kept = create();
        nixl::read_request kept_reference = reference_.from_prepared(pairs_);
        nixl::read_request largest = sides_.read_as_one(sides_.reference(), blocks * block_bytes);
        const host_view view = sides_.view();
        const std::vector<samples> taken = alternate(chosen_.rounds(15), {
            checked(view, pairs_, [&] { kv::submit_and_wait(create()); }),
            checked(view, pairs_, [&] { reference_.from_lists(pairs_).post_and_poll(); }),
            checked(view, pairs_, [&] { reference_.from_prepared(pairs_).post_and_poll(); }),
            checked(view, pairs_, [&] { kv::submit_and_wait(kept); }),
            checked(view, pairs_, [&] { kept_reference.post_and_poll(); }),
            [&] { return time_ns([&] { largest.post_and_poll(); }); },
        });
        const auto speed = [&](size_t which) { return rates(double(blocks * block_bytes), taken[which]); };
        const parameters whole = described("create, submit, wait");
        found.add({"08-submit", whole, speed(0), lists_name, speed(1), speed(5), "GB/s"});
        found.add({"08-submit", whole, speed(0), sorted_name, speed(2), speed(5), "GB/s"});
        found.add({"08-submit", described("submit again, wait"), speed(3),
                   "NIXL: the same sorted request posted again", speed(4), speed(5), "GB/s"});
    }

  private:
    kv::transfer create() const { return kv::make_transfer(sides_.remote(), sides_.local(), pairs_); }

    candidate creation_from_lists() const
    {
        return [this] {
            const double start = now_ns();
            const nixl::read_request made = reference_.from_lists(pairs_);
            return now_ns() - start;
        };
    }

    parameters described(const char *step) const
    {
        parameters all = setting_;
        all.emplace_back("step", step);
        return all;
    }

    const options &chosen_;
    const two_sides &sides_;
    const reference_user &reference_;
    kv::pairs pairs_;
    parameters setting_;
};

void measure_pools(const options &chosen, uint64_t block_bytes, bool progress_thread, results &found)
{
    const two_sides sides({pool, block_bytes}, progress_thread);
    const reference_user reference(sides);
    const parameters setting = {{"block_bytes", block_bytes},
                                {"progress_thread", progress_thread ? "on" : "off"}};
    const pattern patterns[] = {
        {"scattered", 1, false},
        {"runs of 8", 8, false},
        {"runs of 64", 64, false},
        {"runs of 64, pairs shuffled", 64, true},
    };
    for (const pattern &shape : patterns) {
        const submission measured(chosen, sides, reference, shape, setting);
        if (block_bytes == 4096) { // the duration of the calls does not depend on the size
            measured.measure_calls(found);
            measured.measure_repeat(found);
        }
        measured.measure_throughput(block_bytes, found);
    }
}

void measure(const options &chosen, results &found)
{
    measure_pools(chosen, 64, false, found); // few bytes: the overhead of a transfer
    measure_pools(chosen, 4096, false, found);
    measure_pools(chosen, 4096, true, found);
    measure_pools(chosen, 16384, false, found);
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure, bench::serve_pool); }
