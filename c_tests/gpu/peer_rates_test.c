// SPDX-License-Identifier: Apache-2.0
// Rates of copies between two GPUs: measured once for each GPU that executes the copies, loaded, discarded,
// and used to estimate transfers. Skipped with one GPU.
#include "allocated.h"
#include "owner.h"
#include "rates_blob.h"
#include "caller_context.h"
#include "exercise.h"

#include <math.h>

CONTEXTS_END

REQUIRES(lacks_two_gpus)

#define BLOCK_SIZE (64 * MIB)

static rates_blob get_rates(int device) { return rates_get_peer(device, 1 - device); }

static void load(int device, const rates_blob *rates) { rates_set_peer(device, 1 - device, rates); }

/* Other cases rely on the default rates. */
static void load_defaults(int device) { EXPECT_OK(kvmem_cuda_use_default_rates(device, ERR)); }

static void check_figures(const rates_blob *rates) {
    for (size_t i = 0; i < NUM_PEER_RATES; i++)
        CHECK(isfinite(rates_figure(rates, i)) && rates_figure(rates, i) > 0);
    CHECK(rates_figure(rates, PEER_RATE_WRITE_KERNEL) <= 4 * rates_figure(rates, PEER_RATE_WRITE));
}

/* Rates measured with the stand-in may be implausible, so that defaults replace them. */
static void check_measured(int device, const rates_blob *rates) {
    const bool can = gpu_can_access(device, 1 - device);
    check_figures(rates);
    const kvmem_rates_info info = rates_info(rates);
    CHECK(info.read_bytes_per_second == rates_figure(rates, PEER_RATE_READ));
    CHECK(info.write_bytes_per_second == rates_figure(rates, PEER_RATE_WRITE));
    CHECK(info.launch_ns == 0);
    if (driver_is_stand_in()) {
        CHECK(info.source == KVMEM_RATES_MEASURED || info.source == KVMEM_RATES_DEFAULT);
    } else {
        CHECK_EQ(info.source, KVMEM_RATES_MEASURED);
        CHECK_EQ(info.num_defaults, can ? 0 : 4); /* those of the kernel, in both directions */
    }
}

TEST(rates_are_measured_once_and_without_a_context_of_the_peer) {
    for (int device = 0; device < 2; device++) {
        const bool can = gpu_can_access(device, 1 - device);
        await_context_release(1 - device);
        load(device, NULL);
        const rates_blob first = get_rates(device);
        CHECK(!can || !has_primary_context(1 - device));
        check_measured(device, &first);
        const rates_blob second = get_rates(device);
        CHECK_EQ(memcmp(first.bytes, second.bytes, first.size), 0);
        load_defaults(device);
    }
}

/* The engine chooses which of two GPUs executes a copy. */
TEST(default_rates_apply_to_copies_by_either_gpu) {
    for (int device = 0; device < 2; device++) load(device, NULL);
    load_defaults(0);
    for (int device = 0; device < 2; device++) {
        const rates_blob rates = get_rates(device);
        CHECK_EQ(rates_info(&rates).source, KVMEM_RATES_LOADED);
    }
}

/* Two blocks of one piece each. */
static kvmem_layout *build(int device) {
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 2, it.num_layers = 1,
                                            it.outer_dim = 1, it.page_size = 1, it.dtype_width = 2,
                                            it.inner_dim = BLOCK_SIZE / it.dtype_width);
    kvmem_layout *layout = NULL;
    EXPECT_OK(build_on_device(device, &config, &layout));
    return layout;
}

/* Returns the estimated seconds of one copy of the driver. */
static double estimated_seconds(const kvmem_layout *source, const kvmem_layout *destination) {
    const kvmem_block_pair pair = {.source = 0, .destination = 1};
    const kv_job options = JOB(it.run.pairs = &pair, it.run.num_pairs = 1,
                                                   it.transfer.method = KVMEM_METHOD_CUDA_COPY);
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination, &options);
    CHECK_EQ(transfer_info(transfer).num_moves, 1);
    return (double)BLOCK_SIZE / (double)transfer_used_method(transfer).bytes_per_second;
}

/* The GPU of the destination executes the copies, so they are reads. */
TEST(creating_a_transfer_measures_rates_and_the_estimate_uses_them) {
    for (int device = 0; device < 2; device++) {
        OWNED(kvmem_layout) source = build(1 - device);
        OWNED(kvmem_layout) destination = build(device);
        load(device, NULL);
        estimated_seconds(source, destination); /* begins to measure, and may use defaults until the end */
        rates_blob rates = get_rates(device);
        const double seconds = estimated_seconds(source, destination);
        check_measured(device, &rates);
        const double bytes = (double)BLOCK_SIZE / rates_figure(&rates, PEER_RATE_READ);
        const double calls = 6.5e-6; /* the fixed cost of a run, and the call of one copy */
        CHECK(fabs(seconds - bytes - calls) < 1e-6 * seconds);
        rates_set_figure(&rates, PEER_RATE_READ, rates_figure(&rates, PEER_RATE_READ) / 2);
        rates_set_figure(&rates, PEER_RATE_WRITE, rates_figure(&rates, PEER_RATE_WRITE) * 2);
        load(device, &rates);
        CHECK(fabs(estimated_seconds(source, destination) - 2 * bytes - calls) < 2e-6 * seconds);
        rates = get_rates(device);
        CHECK_EQ(rates_info(&rates).source, KVMEM_RATES_LOADED);
        load_defaults(device);
    }
}

TEST(rates_are_set_for_the_gpu_that_executes_the_copies) {
    load_defaults(0);
    rates_blob given = get_rates(0);
    rates_set_figure(&given, PEER_RATE_WRITE, 5e9);
    rates_set_figure(&given, PEER_RATE_WRITE_BATCH, 1234e-9);
    const rates_blob other = get_rates(1);
    load(0, &given);
    const rates_blob rates = get_rates(0);
    const kvmem_rates_info info = rates_info(&rates);
    CHECK_EQ(info.source, KVMEM_RATES_LOADED);
    CHECK_EQ(info.num_defaults, 0);
    CHECK(memcmp(info.uuid, info.peer_uuid, sizeof(info.uuid)) != 0);
    for (size_t i = 0; i < NUM_PEER_RATES; i++) CHECK(rates_figure(&rates, i) == rates_figure(&given, i));
    const rates_blob same = get_rates(1);
    CHECK_EQ(memcmp(other.bytes, same.bytes, same.size), 0);
    load_defaults(0);
}

TEST(invalid_rates_are_rejected) {
    const double wrong[] = {-1, NAN, INFINITY};
    load_defaults(0);
    const rates_blob good = get_rates(0);
    for (size_t i = 0; i < NUM(wrong); i++) {
        rates_blob rates = good;
        rates_set_figure(&rates, PEER_RATE_READ_CTA, wrong[i]);
        EXPECT(KVMEM_STATUS_CORRUPT, kvmem_cuda_set_copy_rates(0, 1, rates.bytes, rates.size, ERR));
    }
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "device 1 has UUID ",
                   kvmem_cuda_set_copy_rates(1, 0, good.bytes, good.size, ERR));
    const rates_blob one = rates_get(0);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "rates of one GPU",
                   kvmem_cuda_set_copy_rates(0, 1, one.bytes, one.size, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "rates between two GPUs",
                   kvmem_cuda_set_copy_rates(1, 1, good.bytes, good.size, ERR));
    EACH_MISSING_DEVICE(missing) {
        REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "", kvmem_cuda_get_copy_rates, 0, *missing);
        REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "", kvmem_cuda_get_copy_rates, *missing, 0);
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_set_copy_rates(*missing, 0, good.bytes, good.size, ERR));
    }
    const rates_blob after = get_rates(0); /* unchanged */
    CHECK_EQ(memcmp(good.bytes, after.bytes, good.size), 0);
}
