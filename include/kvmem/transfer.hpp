// SPDX-License-Identifier: Apache-2.0
/// Transfers: moves of blocks between two layouts.
#ifndef KVMEM_TRANSFER_HPP
#define KVMEM_TRANSFER_HPP

#include "cuda.h"
#include "layout.hpp"
#include "queue.hpp"
#include <algorithm>
#include <iterator>

KVMEM_HPP_BEGIN

// ---- What to move ----

/// {source, destination}
using BlockPair = kvmem_block_pair;

/// Blocks of a sequence in the order of its tokens: kvmem_block_table.
struct BlockTable {
    Elements<std::uint32_t> blocks{};
    std::uint64_t first_token = 0;
    std::uint64_t token_step = 0;

    kvmem_block_table c() const noexcept {
        kvmem_block_table c = {};
        c.blocks = blocks.data();
        c.num_blocks = blocks.size();
        c.first_token = first_token;
        c.token_step = token_step;
        return c;
    }
};

/// Returns the name of a method, such as "CUDA kernel".
inline const char *name(Method method) noexcept {
    return kvmem_method_name(static_cast<std::uint32_t>(method));
}

/// kvmem_transfer_options: what does not change from run to run.
struct TransferOptions {
    Flags<TransferFlag> flags{};
    const Queue *queue = nullptr;
    std::uint64_t layers_per_completion = 0;
    std::uint64_t source_layer = 0;
    std::uint64_t destination_layer = 0;
    std::uint64_t num_layers = 0;
    std::uint64_t source_outer = 0;
    std::uint64_t destination_outer = 0;
    std::uint64_t num_outers = 0;
    std::uint64_t source_head = 0;
    std::uint64_t destination_head = 0;
    std::uint64_t num_heads = 0;
    /// Names of the parts to move; none for all.
    std::vector<std::string> parts{};
    Method method = Method::fastest;
    Compute compute = Compute::may_run;
    std::uint32_t max_ctas = 0;
    std::uint64_t staging_size = 0;
    /// Zero: 30 seconds with staging memory, no limit without.
    std::chrono::nanoseconds stall_timeout{0};
};

/// kvmem_submit_options: the blocks of a run. Spans are read during the call, so their elements need not
/// exist afterwards.
struct SubmitOptions {
    Elements<BlockPair> pairs{};
    std::optional<BlockTable> source_table{};
    std::optional<BlockTable> destination_table{};
    std::uint64_t num_tokens = 0;
    /// After this time the run ends with Status::timed_out. Zero: no limit.
    std::chrono::nanoseconds run_timeout{0};
    std::uint64_t user_data = 0;
    /// What is checked at the end of the run.
    Flags<SubmitFlag> flags{};
    /// One per pair. Not with SubmitFlag::verify, which compares with the source.
    Elements<std::uint32_t> checksums{};
    /// Bytes for the remote agent; an empty string is an empty message.
    std::optional<std::string> notification{};
    /// Expected epochs of the source blocks, one per pair or per block of source_table. The run ends with
    /// Status::stale if one differs.
    Elements<std::uint64_t> epochs{};
};

namespace detail {

inline Result<void> check_one_per(const char *block, std::size_t blocks, std::size_t count,
                                  const char *what) {
    // Without blocks the call fails, and reports why.
    if (count == 0 || blocks == 0 || count == blocks) return {};
    return Error(Status::invalid_argument,
                 "there are " + std::to_string(count) + " " + what + " for " + std::to_string(blocks) + " " +
                     block + "s; give one per " + block + ", or none");
}

inline Result<void> check_lists(const SubmitOptions &options) {
    const std::size_t pairs = options.pairs.size();
    auto checked = check_one_per("pair", pairs, options.checksums.size(), "checksums");
    if (!checked) return checked;
    if (!options.source_table) return check_one_per("pair", pairs, options.epochs.size(), "epochs");
    return check_one_per("block", options.source_table->blocks.size(), options.epochs.size(), "epochs");
}

struct TransferOptionsInC {
    kvmem_transfer_options c = defaults<kvmem_transfer_options>();
    std::vector<const char *> parts{};

    explicit TransferOptionsInC(const TransferOptions &options) {
        c.flags = options.flags.bits();
        c.source_layer = options.source_layer;
        c.destination_layer = options.destination_layer;
        c.num_layers = options.num_layers;
        c.source_outer = options.source_outer;
        c.destination_outer = options.destination_outer;
        c.num_outers = options.num_outers;
        c.source_head = options.source_head;
        c.destination_head = options.destination_head;
        c.num_heads = options.num_heads;
        for (const std::string &part : options.parts) parts.push_back(part.c_str());
        c.parts = parts.empty() ? nullptr : parts.data();
        c.num_parts = parts.size();
        c.queue = get_or_null(options.queue);
        c.layers_per_completion = options.layers_per_completion;
        c.compute = static_cast<std::uint32_t>(options.compute);
        c.max_ctas = options.max_ctas;
        c.staging_size = options.staging_size;
        c.method = static_cast<std::uint32_t>(options.method);
        c.stall_timeout_ns = limit_ns(options.stall_timeout);
    }
    TransferOptionsInC(const TransferOptionsInC &) = delete;
    TransferOptionsInC &operator=(const TransferOptionsInC &) = delete;
};

// The options, and the block tables that their pointers refer to.
struct SubmitOptionsInC {
    kvmem_submit_options c = defaults<kvmem_submit_options>();
    kvmem_block_table source_table{};
    kvmem_block_table destination_table{};

    explicit SubmitOptionsInC(const SubmitOptions &options) noexcept {
        c.pairs = options.pairs.data();
        c.num_pairs = options.pairs.size();
        if (options.source_table) {
            source_table = options.source_table->c();
            c.source_table = &source_table;
        }
        if (options.destination_table) {
            destination_table = options.destination_table->c();
            c.destination_table = &destination_table;
        }
        c.num_tokens = options.num_tokens;
        c.user_data = options.user_data;
        if (options.notification) {
            c.notification = options.notification->data();
            c.notification_size = options.notification->size();
        }
        c.flags = options.flags.bits();
        c.checksums = options.checksums.empty() ? nullptr : options.checksums.data();
        c.epochs = options.epochs.empty() ? nullptr : options.epochs.data();
        c.run_timeout_ns = limit_ns(options.run_timeout);
    }
    SubmitOptionsInC(const SubmitOptionsInC &) = delete;
    SubmitOptionsInC &operator=(const SubmitOptionsInC &) = delete;
};

}  // namespace detail

// ---- Information ----

/// kvmem_transfer_info.
struct TransferInfo : kvmem_transfer_info {
    TransferInfo() noexcept : kvmem_transfer_info() {}
    TransferInfo(const kvmem_transfer_info &c) noexcept
        : kvmem_transfer_info(c), method(Method{c.method}),
          duration(static_cast<std::int64_t>(c.duration_ns)) {}

    Method method{};
    std::chrono::nanoseconds duration{0};
};

/// kvmem_compared_method.
struct ComparedMethod {
    ComparedMethod(const kvmem_compared_method &c)
        : method(Method{c.method}), choice(Choice{c.choice}), bytes_per_second(c.bytes_per_second),
          assumed(c.assumed != 0), reason(c.reason) {}

    Method method;
    Choice choice;
    /// 0 if unknown.
    std::uint64_t bytes_per_second;
    bool assumed;
    std::string reason;
};

// ---- Transfers ----

/// Moves of blocks between two layouts. Destroying it does not wait: a run in flight continues, and uses the
/// blocks until its end.
class Transfer : public detail::Handle<kvmem_transfer, kvmem_transfer_destroy> {
public:
    using Handle::Handle;

    static Return<Transfer> create(const Layout &source, const Layout &destination,
                                   const TransferOptions &options = {}) {
        return make(options, [&](const kvmem_transfer_options *c) {
            return detail::make<Transfer>(kvmem_transfer_create, source.get(), destination.get(), c);
        });
    }
    /// Creates a transfer and starts its first run.
    static Return<Transfer> start(const Layout &source, const Layout &destination,
                                  const TransferOptions &options, const SubmitOptions &first) {
        if (auto checked = detail::check_lists(first); !checked) {
            return detail::give(Result<Transfer>(checked.error()));
        }
        const detail::SubmitOptionsInC step(first);
        return make(options, [&](const kvmem_transfer_options *c) {
            return detail::make<Transfer>(kvmem_transfer_start, source.get(), destination.get(), c, &step.c);
        });
    }

    /// Prepares the blocks of the next run, which submit() starts. Moves nothing.
    Return<void> prepare(const SubmitOptions &options) {
        return with(options, [&](const kvmem_submit_options *c) {
            return detail::run(kvmem_transfer_prepare, get(), c);
        });
    }
    /// Starts a run with these blocks.
    Return<void> submit(const SubmitOptions &options) {
        return with(options, [&](const kvmem_submit_options *c) {
            return detail::run(kvmem_transfer_submit, get(), c);
        });
    }
    /// Starts a run with the blocks that were prepared or submitted last.
    Return<void> submit() { return detail::give(detail::run(kvmem_transfer_submit, get(), nullptr)); }
    /// The same on a stream, a CUstream or cudaStream_t.
    Return<void> submit_on_stream(const SubmitOptions &options, CUstream_st *stream) {
        return with(options, [&](const kvmem_submit_options *c) {
            return detail::run(kvmem_transfer_submit_on_stream, get(), c, stream);
        });
    }
    Return<void> submit_on_stream(CUstream_st *stream) {
        return detail::give(detail::run(kvmem_transfer_submit_on_stream, get(), nullptr, stream));
    }

    /// Returns true if the last run has succeeded, and false while it is in flight. Fails as the run failed.
    [[nodiscard]] Return<bool> poll() const {
        const auto state = detail::call(kvmem_transfer_poll, get());
        if (!state) return detail::give(Result<bool>(state.error()));
        return detail::give(Result<bool>(*state != Status::in_progress));
    }
    /// Waits for the end of the last run. Fails as the run failed.
    Return<void> wait() const { return detail::give(detail::run(kvmem_transfer_wait, get(), forever.ns())); }
    /// The same with a timeout. Returns false if the run is still in flight.
    [[nodiscard]] Return<bool> wait_for(Timeout timeout) const {
        return in_time(detail::call(kvmem_transfer_wait, get(), timeout.ns()));
    }
    /// Cancels what has not started. Wait for the end before you reuse memory.
    Return<void> cancel() { return detail::give(detail::run(kvmem_transfer_cancel, get())); }

    Return<void> wait_layers(std::uint64_t num_layers) const {
        return detail::give(detail::run(kvmem_transfer_wait_layers, get(), num_layers, forever.ns()));
    }
    /// Returns false if the layers have not moved in time.
    [[nodiscard]] Return<bool> wait_layers_for(std::uint64_t num_layers, Timeout timeout) const {
        return in_time(detail::call(kvmem_transfer_wait_layers, get(), num_layers, timeout.ns()));
    }
    /// Makes a stream wait for layers; 0 for the whole run.
    Return<void> wait_on_stream(std::uint64_t num_layers, CUstream_st *stream) const {
        return detail::give(detail::run(kvmem_transfer_wait_on_stream, get(), num_layers, stream));
    }

    /// The indices of the pairs, or of the moved tokens of block tables, that differ after the last run.
    Return<std::vector<std::uint64_t>> mismatches() const {
        return detail::give(detail::list<std::uint64_t>(kvmem_transfer_get_mismatches, get()));
    }
    /// The checksums that the last run has computed, with SubmitFlag::checksum.
    Return<std::vector<std::uint32_t>> checksums() const {
        return detail::give(detail::list<std::uint32_t>(kvmem_transfer_get_checksums, get()));
    }

    Return<TransferInfo> info() const {
        auto c = detail::get<kvmem_transfer_info>(kvmem_transfer_get_info, get());
        if (!c) return detail::give(Result<TransferInfo>(c.error()));
        return detail::give(Result<TransferInfo>(TransferInfo(*c)));
    }
    /// Text for people, with a line per method that was compared.
    Return<std::string> explain() const { return detail::give(detail::text(kvmem_transfer_explain, get())); }
    /// Returns the methods that were compared, beginning with the one that the transfer takes.
    Return<std::vector<ComparedMethod>> methods() const {
        kvmem_compared_method found[16];
        const auto count =
            detail::get<std::size_t>(kvmem_transfer_get_methods, get(), found, std::size(found));
        if (!count) return detail::give(Result<std::vector<ComparedMethod>>(count.error()));
        return detail::give(Result<std::vector<ComparedMethod>>(
            std::vector<ComparedMethod>(found, found + std::min(*count, std::size(found)))));
    }

private:
    Return<bool> in_time(const Result<Status> &wait) const {
        return detail::give(
            detail::in_time(wait, [this] { return detail::call(kvmem_transfer_poll, get()); }));
    }
    template <typename Make>
    static Return<Transfer> make(const TransferOptions &options, Make make) {
        for (const std::string &part : options.parts) {
            if (auto checked = detail::check_text(part, "the name of a part"); !checked) {
                return detail::give(Result<Transfer>(checked.error()));
            }
        }
        const detail::TransferOptionsInC in_c(options);
        return detail::give(make(&in_c.c));
    }
    template <typename Submit>
    static Return<void> with(const SubmitOptions &options, Submit submit) {
        if (auto checked = detail::check_lists(options); !checked) {
            return detail::give(std::move(checked));
        }
        const detail::SubmitOptionsInC in_c(options);
        return detail::give(submit(&in_c.c));
    }
};

KVMEM_HPP_END

#endif
