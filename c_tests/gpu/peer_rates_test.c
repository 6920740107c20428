// SPDX-License-Identifier: Apache-2.0
// What copies between two GPUs cost: measured once for each that does the work, loaded, forgotten; and by which what is
// expected of a transfer is told. Fails where there is one GPU.
#include "allocated.h"
#include "owner.h"
#include "stance.h"
#include "work.h"

#include <math.h>

REQUIRES(lacks_two_gpus)

#define BLOCK_SIZE (64 * MIB)

static bool is_stand_in(void) {
    return driver_symbol("sim_reset") != NULL;
}

static kvmem_peer_rates get_rates(int device) {
    kvmem_peer_rates rates = OPTIONS(kvmem_peer_rates);
    EXPECT_OK(kvmem_cuda_get_peer_rates(device, 1 - device, &rates, ERR));
    CHECK_EQ(rates.struct_size, sizeof(rates));
    return rates;
}

static void load(int device, const kvmem_peer_rates *rates) {
    EXPECT_OK(kvmem_cuda_set_peer_rates(device, 1 - device, rates, ERR));
}

/* Afterwards all is as the other cases expect it. */
static void load_defaults(int device) {
    kvmem_peer_rates defaults = OPTIONS(kvmem_peer_rates);
    load(device, &defaults);
}

static void check_way(const kvmem_direction_rates *rates) {
    const double figures[] = {rates->bytes_per_second, rates->batch_copy_ns, rates->kernel_bytes_per_second,
                              rates->cta_bytes_per_second};
    for (size_t i = 0; i < NUM(figures); i++) {
        CHECK(isfinite(figures[i]) && figures[i] > 0);
    }
    CHECK(rates->kernel_bytes_per_second <= 1.1 * rates->bytes_per_second);
}

/* What a stand-in's copies take may be beyond belief; a GPU's are believed. */
static void check_measured(int device, const kvmem_peer_rates *rates) {
    check_way(&rates->read);
    check_way(&rates->write);
    GET(bool, can, kvmem_cuda_can_access, device, 1 - device);
    if (is_stand_in()) {
        CHECK(rates->source == KVMEM_RATES_MEASURED || rates->source == KVMEM_RATES_DEFAULT);
    } else {
        CHECK_EQ(rates->source, KVMEM_RATES_MEASURED);
        CHECK_EQ(rates->num_defaults, can ? 0 : 4); /* the kernel's, each way */
    }
}

TEST(rates_are_measured_once_and_without_a_context_of_the_peer) {
    for (int device = 0; device < 2; device++) {
        GET(bool, can, kvmem_cuda_can_access, device, 1 - device);
        await_no_context(1 - device);
        load(device, NULL);
        const kvmem_peer_rates first = get_rates(device);
        CHECK(!can || !has_primary_context(1 - device));
        check_measured(device, &first);
        const kvmem_peer_rates second = get_rates(device);
        CHECK_EQ(memcmp(&first, &second, sizeof(first)), 0);
        load_defaults(device);
    }
}

/* Two blocks, each in one piece. */
static kvmem_layout *build(int device) {
    kvmem_layout_config config = OPTIONS(kvmem_layout_config, it.kind = KVMEM_LAYOUT_FULLY_CONTIGUOUS,
                                         it.num_blocks = 2, it.num_layers = 1, it.outer_dim = 1,
                                         it.page_size = 1, it.dtype_width = 2,
                                         it.inner_dim = BLOCK_SIZE / it.dtype_width);
    kvmem_layout *layout = NULL;
    EXPECT_OK(build_on_device(device, &config, &layout));
    return layout;
}

/* What is expected of one copy of the driver's. */
static double seconds_expected(const kvmem_layout *source, const kvmem_layout *destination) {
    const kvmem_block_pair pair = {.source = 0, .destination = 1};
    kvmem_transfer_options options = OPTIONS(kvmem_transfer_options, it.pairs = &pair, it.num_pairs = 1,
                                             it.path = KVMEM_PATH_CUDA_COPY);
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source, destination, &options);
    kvmem_transfer_explanation explanation;
    EXPECT_OK(kvmem_transfer_explain(transfer, &explanation, NULL, ERR));
    CHECK_EQ(explanation.num_moves, 1);
    return (double)BLOCK_SIZE / (double)explanation.bytes_per_second;
}

/* The GPU of the destination does the work, and reads. */
TEST(a_transfer_has_them_measured_and_is_explained_by_them) {
    for (int device = 0; device < 2; device++) {
        OWNED(kvmem_layout) source = build(1 - device);
        OWNED(kvmem_layout) destination = build(device);
        load(device, NULL);
        const double seconds = seconds_expected(source, destination);
        kvmem_peer_rates rates = get_rates(device);
        check_measured(device, &rates);
        const double bytes = (double)BLOCK_SIZE / rates.read.bytes_per_second;
        const double calls = 6.7e-6; /* what any run begins with, and its one copy */
        CHECK(fabs(seconds - bytes - calls) < 1e-6 * seconds);
        rates.read.bytes_per_second /= 2;
        rates.write.bytes_per_second *= 2;
        load(device, &rates);
        CHECK(fabs(seconds_expected(source, destination) - 2 * bytes - calls) < 2e-6 * seconds);
        CHECK_EQ(get_rates(device).source, KVMEM_RATES_LOADED);
        load_defaults(device);
    }
}

TEST(what_is_loaded_comes_back_for_the_one_that_does_the_work) {
    kvmem_peer_rates given = OPTIONS(kvmem_peer_rates, it.write.bytes_per_second = 5e9,
                                     it.write.batch_copy_ns = 1234);
    const kvmem_peer_rates other = get_rates(1);
    load(0, &given);
    const kvmem_peer_rates rates = get_rates(0);
    CHECK_EQ(rates.source, KVMEM_RATES_LOADED);
    CHECK_EQ(rates.num_defaults, 0);
    CHECK(rates.write.bytes_per_second == 5e9 && fabs(rates.write.batch_copy_ns - 1234) < 1e-6);
    check_way(&rates.read);
    const kvmem_peer_rates same = get_rates(1);
    CHECK_EQ(memcmp(&other, &same, sizeof(same)), 0);
    load_defaults(0);
}

TEST(what_can_not_be_is_refused) {
    const double wrong[] = {-1, NAN, INFINITY};
    const int missing[] = {-1, driver_devices()};
    kvmem_peer_rates rates;
    for (size_t i = 0; i < NUM(wrong); i++) {
        kvmem_peer_rates_init(&rates, sizeof(rates));
        rates.read.cta_bytes_per_second = wrong[i];
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_cuda_set_peer_rates(0, 1, &rates, ERR));
    }
    kvmem_peer_rates_init(&rates, sizeof(rates));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "no peer of itself",
                   kvmem_cuda_get_peer_rates(1, 1, &rates, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_cuda_set_peer_rates(1, 1, &rates, ERR));
    for (size_t i = 0; i < NUM(missing); i++) {
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_get_peer_rates(0, missing[i], &rates, ERR));
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_get_peer_rates(missing[i], 0, &rates, ERR));
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_set_peer_rates(missing[i], 0, &rates, ERR));
    }
    CHECK_EQ(get_rates(0).source, KVMEM_RATES_LOADED); /* as before */
}
