// SPDX-License-Identifier: Apache-2.0
// Row 9 on a GPU: the latency until the end of a transfer is seen, compared with a CUDA event queried without pause.
#include "common/block_ids.hpp"
#include "common/clock.hpp"
#include "common/completion.hpp"
#include "common/gpu.hpp"
#include "common/points.hpp"
#include "common/side.hpp"
#include "reference/copies.hpp"
#include "reference/observer.hpp"

#include <algorithm>
#include <poll.h>
#include <stdexcept>
#include <unistd.h>

namespace {

using namespace bench;

constexpr int device = 0;
constexpr uint64_t block_bytes = 16 << 10;
constexpr uint64_t gate_bytes = 16 << 20;

struct direction {
    const char *name;
    place from;
    place to;
};

// The driver's copy on a stream, with an event after it.
struct raw_copy {
    const side &from;
    const side &to;
    uint64_t bytes;
    cuda::own_stream stream;
    cuda::own_event end;

    void submit_on(const cuda::own_stream &on) const
    {
        cuda::copy_whole(to.base(), from.base(), bytes, on);
        end.record(on.get());
    }
};

// A copy that keeps a stream busy until the work after it has been submitted.
class gate {
  public:
    gate() : host_(place::host, device, gate_bytes), device_(place::device, device, gate_bytes) {}
    void put_on(const cuda::own_stream &stream) const
    {
        cuda::copy_whole(host_.base(), device_.base(), gate_bytes, stream);
    }

  private:
    arena host_;
    arena device_;
};

// A method to start the transfer, by itself or on a stream, and to wait for its end.
struct method {
    const char *name;
    bool is_woken; // by the thread that polls without pause
    std::function<void()> submit;
    std::function<void(const cuda::own_stream &)> submit_on;
    std::function<void()> wait;
};

class methods {
  public:
    methods(const side &from, const side &to, const kv::pairs &pairs)
        : queue_(kv::make<kv::queue>(kvmem_queue_create)),
          plain_(kv::make_transfer(from.layout(), to.layout(), pairs, {}, {KVMEM_COMPUTE_IDLE})),
          queued_(kv::make_transfer(from.layout(), to.layout(), pairs, {queue_.get(), 1},
                                    {KVMEM_COMPUTE_IDLE})),
          raw_{from, to, pairs.size() * block_bytes, {}, {}}
    {
        kv::call(kvmem_queue_get_fd, queue_.get(), &fd_);
    }

    std::string path() const { return kv::path_of(plain_); }

    std::vector<method> ours() const
    {
        return {
            own("kvmem_transfer_wait", plain_, [this] { kv::wait(plain_); }),
            own("kvmem_queue_wait", queued_, [this] { wait_on_queue(queue_.get()); }),
            own("event fd and poll(2)", queued_, [this] { wait_on_fd(queue_.get(), fd_); }),
        };
    }

    method every_1_ms() const { return raw("the event queried every 1 ms", false, query(sleep_1_ms)); }
    method without_pause() const { return raw("the event queried without pause", false, query([] {})); }
    method asleep(int fd) const
    {
        return raw("asleep in poll(2), woken by who looks without pause", true, [fd] { sleep_until(fd); });
    }

  private:
    static method own(const char *name, const kv::transfer &transfer, const std::function<void()> &wait)
    {
        return {name, false, [&transfer] { kv::submit(transfer); },
                [&transfer](const cuda::own_stream &stream) {
                    kv::call(kvmem_transfer_submit_on_stream, transfer.get(), nullptr,
                             reinterpret_cast<CUstream_st *>(stream.get()));
                },
                wait};
    }

    method raw(const char *name, bool is_woken, const std::function<void()> &wait) const
    {
        return {name, is_woken, [this] { raw_.submit_on(raw_.stream); },
                [this](const cuda::own_stream &stream) { raw_.submit_on(stream); }, wait};
    }

    std::function<void()> query(const std::function<void()> &pause) const
    {
        return [this, pause] {
            while (!raw_.end.is_complete())
                pause();
        };
    }

    static void sleep_until(int fd)
    {
        pollfd watched{fd, POLLIN, 0};
        uint64_t count = 0;
        if (poll(&watched, 1, -1) != 1 || read(fd, &count, sizeof count) != sizeof count)
            throw std::runtime_error("poll(2) on the observer's event fd returned without an event");
    }

    kv::queue queue_;
    int32_t fd_ = -1;
    kv::transfer plain_;
    kv::transfer queued_;
    raw_copy raw_;
};

template <typename Take> candidate into_wiped(const side &to, const kv::pairs &pairs, Take take)
{
    return [&to, &pairs, take] {
        to.wipe(pairs);
        const double taken = take();
        to.verify(pairs);
        return taken;
    };
}

// The time from the submission until the end is seen.
double submit_to_seen(const method &measured)
{
    return time_ns([&] {
        measured.submit();
        measured.wait();
    });
}

// The time from when the observer sees a byte that the stream writes after the same work, until the waiting thread sees
// the end. A waiting thread that was not later than the observer counts as 1 ns.
double seen_after_the_end(const method &measured, const cuda::own_stream &stream, const gate &before,
                          cuda::observer &other)
{
    before.put_on(stream);
    measured.submit_on(stream);
    other.watch(stream.get(), measured.is_woken);
    measured.wait();
    const double seen = now_ns();
    return std::max(seen - other.saw_ns(), 1.0);
}

struct series {
    size_t length;
    int count;
    int turns() const { return static_cast<int>(length) * count; }
};

series series_for(const options &chosen, uint64_t bytes)
{
    return chosen.quick ? series{10, 2} : series{bytes > 1 << 20 ? size_t{100} : size_t{500}, 5};
}

// The candidates of one measurement: kvmem's methods, then the references, the ceiling last.
struct timing {
    const char *name;
    size_t num_ours;
    std::vector<method> methods;
    std::vector<candidate> candidates;
};

void add_rows(results &found, const parameters &setting, const timing &of, const std::vector<samples> &taken,
              size_t length)
{
    const size_t ceiling = of.methods.size() - 1;
    const std::pair<const char *, double> statistics[] = {{"p50", 0.5}, {"p99", 0.99}};
    for (const auto &[statistic, share] : statistics)
        for (size_t ours = 0; ours < of.num_ours; ++ours)
            for (size_t reference = of.num_ours; reference < ceiling; ++reference) {
                parameters all = setting;
                all.emplace_back("way", of.methods[ours].name);
                all.emplace_back("statistic", statistic);
                found.add({"09-gpu-completion", all, by_series(taken[ours], share, length),
                           of.methods[reference].name, by_series(taken[reference], share, length),
                           by_series(taken[ceiling], share, length), "us"});
            }
}

struct arenas {
    arena host;
    arena gpu;
    arena mirror;

    explicit arenas(uint64_t size)
        : host(place::host, device, size), gpu(place::device, device, size), mirror(place::host, device, size)
    {}
    const arena &at(place where) const { return where == place::host ? host : gpu; }
};

void measure_size(const options &chosen, const direction &going, const arenas &memory, uint64_t bytes,
                  results &found)
{
    const auto count = static_cast<uint32_t>(bytes / block_bytes);
    const kvmem_layout_config config = whole_blocks(block_bytes, count);
    const side from(memory.at(going.from), memory.mirror, config);
    const side to(memory.at(going.to), memory.mirror, config);
    from.fill();
    const kv::pairs pairs = first_blocks(count);
    const methods made(from, to, pairs);
    const cuda::own_stream stream;
    const gate before;
    cuda::observer other;
    const std::vector<method> ours = made.ours();
    timing timings[] = {{"submit to seen", ours.size(), ours, {}}, {"seen after the end", ours.size(), ours, {}}};
    auto &[from_submission, after_the_end] = timings;
    from_submission.methods.insert(from_submission.methods.end(), {made.every_1_ms(), made.without_pause()});
    after_the_end.methods.insert(after_the_end.methods.end(),
                              {made.every_1_ms(), made.asleep(other.fd()), made.without_pause()});
    for (const method &each : from_submission.methods)
        from_submission.candidates.push_back(into_wiped(to, pairs, [&each] { return submit_to_seen(each); }));
    for (const method &each : after_the_end.methods)
        after_the_end.candidates.push_back(into_wiped(to, pairs, [&each, &stream, &before, &other] {
            return seen_after_the_end(each, stream, before, other);
        }));
    const series wanted = series_for(chosen, bytes);
    for (const timing &each : timings) {
        const parameters setting = {{"direction", going.name}, {"bytes", bytes},
                                 {"timed", each.name},      {"path", made.path()},
                                 {"ceiling_is", each.methods.back().name}, {"gpu", gpu_description(device)}};
        add_rows(found, setting, each, alternate(wanted.turns(), each.candidates), wanted.length);
    }
}

void measure(const options &chosen, results &found)
{
    warn_of_stand_in();
    const cuda::current_device current(device);
    const std::vector<uint64_t> sizes = {16 << 10, 1 << 20, uint64_t{chosen.quick ? 4u : 64u} << 20};
    const arenas memory(sizes.back());
    points grid(chosen);
    for (const direction &going :
         {direction{"D2H", place::device, place::host}, direction{"H2D", place::host, place::device}})
        for (const uint64_t bytes : sizes)
            grid.measure(std::string(going.name) + ", " + std::to_string(bytes >> 10) + " KiB",
                         [&] { measure_size(chosen, going, memory, bytes, found); });
    grid.finish();
}

} // namespace

int main(int argc, char **argv) { return bench::run_program(argc, argv, measure); }
