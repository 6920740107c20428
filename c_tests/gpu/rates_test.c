// SPDX-License-Identifier: Apache-2.0
// What copies of a GPU cost: measured once, loaded, forgotten; and by which the path is chosen.
#include "sides.h"
#include "stance.h"

#include <math.h>

static kvmem_copy_rates get_rates(int device) {
    kvmem_copy_rates rates = OPTIONS(kvmem_copy_rates);
    EXPECT_OK(kvmem_cuda_get_copy_rates(device, &rates, ERR));
    CHECK_EQ(rates.struct_size, sizeof(rates));
    return rates;
}

static void check_direction(const kvmem_direction_rates *rates) {
    const double figures[] = {rates->bytes_per_second, rates->batch_copy_ns, rates->kernel_bytes_per_second,
                              rates->cta_bytes_per_second};
    for (size_t i = 0; i < NUM(figures); i++) {
        CHECK(isfinite(figures[i]) && figures[i] > 0);
    }
    CHECK(rates->kernel_bytes_per_second <= 1.1 * rates->bytes_per_second);
}

static void check_figures(const kvmem_copy_rates *rates) {
    check_direction(&rates->to_device);
    check_direction(&rates->to_host);
    check_direction(&rates->on_device);
    CHECK(rates->pageable_bytes_per_second > 0 && rates->copy_ns > 0 && rates->kernel_start_ns > 0);
}

/* Afterwards all is as the other cases expect it. */
static void load_defaults(int device) {
    kvmem_copy_rates defaults = OPTIONS(kvmem_copy_rates);
    EXPECT_OK(kvmem_cuda_set_copy_rates(device, &defaults, ERR));
}

TEST(rates_are_measured_once) {
    EXPECT_OK(kvmem_cuda_set_copy_rates(0, NULL, ERR));
    const kvmem_copy_rates first = get_rates(0);
    check_figures(&first);
    CHECK(first.source == KVMEM_RATES_MEASURED || first.source == KVMEM_RATES_DEFAULT);
    if (driver_symbol("sim_reset") == NULL) { /* a GPU, whose copies take what they take */
        CHECK_EQ(first.source, KVMEM_RATES_MEASURED);
        CHECK_EQ(first.num_defaults, 0);
    }
    const kvmem_copy_rates second = get_rates(0);
    CHECK_EQ(memcmp(&first, &second, sizeof(first)), 0);
    load_defaults(0);
}

TEST(a_transfer_has_them_measured) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    OPENED(side, source, PLACE_PINNED, 0, &config, NULL, 1);
    OPENED(side, destination, PLACE_DEVICE, 0, &config, NULL, 2);
    EXPECT_OK(kvmem_cuda_set_copy_rates(0, NULL, ERR));
    kvmem_transfer_options options = kv_transfer_options(&move);
    GET(kvmem_transfer *, transfer, kvmem_transfer_create, source.model.layout, destination.model.layout,
        &options);
    RUN(transfer);
    CALL(kvmem_transfer_destroy(transfer));
    side_check_moved(&destination, &source, &move);
    const kvmem_copy_rates rates = get_rates(0);
    CHECK(rates.source != KVMEM_RATES_LOADED);
    CHECK(rates.source == KVMEM_RATES_MEASURED || driver_symbol("sim_reset") != NULL);
    load_defaults(0);
}

TEST(what_is_loaded_comes_back) {
    kvmem_copy_rates given = OPTIONS(kvmem_copy_rates, it.copy_ns = 1234, it.to_host.bytes_per_second = 5e9);
    EXPECT_OK(kvmem_cuda_set_copy_rates(0, &given, ERR));
    kvmem_copy_rates rates = get_rates(0);
    CHECK_EQ(rates.source, KVMEM_RATES_LOADED);
    CHECK_EQ(rates.num_defaults, 0);
    CHECK(fabs(rates.copy_ns - 1234) < 1e-6 && rates.to_host.bytes_per_second == 5e9);
    check_direction(&rates.to_device);
    const kvmem_copy_rates saved = rates; /* as it is, to a later process */
    EXPECT_OK(kvmem_cuda_set_copy_rates(0, &saved, ERR));
    rates = get_rates(0);
    CHECK(fabs(rates.kernel_start_ns - saved.kernel_start_ns) < 1e-6);
    load_defaults(0);
}

TEST(figures_that_can_not_be_are_refused) {
    const double wrong[] = {-1, NAN, INFINITY};
    const kvmem_copy_rates before = get_rates(0);
    for (size_t i = 0; i < NUM(wrong); i++) {
        kvmem_copy_rates rates = OPTIONS(kvmem_copy_rates, it.on_device.cta_bytes_per_second = wrong[i]);
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_cuda_set_copy_rates(0, &rates, ERR));
    }
    const kvmem_copy_rates after = get_rates(0);
    CHECK_EQ(memcmp(&before, &after, sizeof(before)), 0);
}

TEST(a_struct_that_is_too_small_is_not_written) {
    static const size_t sizes[] = {3, sizeof(void *), 16, sizeof(kvmem_copy_rates) - 8};
    for (size_t i = 0; i < NUM(sizes); i++) {
        kvmem_copy_rates rates;
        memset(&rates, 0xEE, sizeof(rates));
        rates.struct_size = sizes[i];
        EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "struct_size",
                       kvmem_cuda_get_copy_rates(0, &rates, ERR));
        CHECK_EQ(rates.struct_size, sizes[i]);
        CHECK_FILLED((const unsigned char *)&rates + sizeof(size_t), 0xEE, sizeof(rates) - sizeof(size_t));
    }
}

TEST(a_device_that_is_not_there_has_none) {
    kvmem_copy_rates rates = OPTIONS(kvmem_copy_rates);
    const int missing[] = {-1, driver_devices()};
    for (size_t i = 0; i < NUM(missing); i++) {
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_get_copy_rates(missing[i], &rates, ERR));
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_set_copy_rates(missing[i], &rates, ERR));
    }
}

/* Which path a scattered transfer to the GPU takes. */
static uint32_t path_by(const side *source, const side *destination, const kvmem_copy_rates *rates) {
    static const kvmem_block_pair pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 3};
    EXPECT_OK(kvmem_cuda_set_copy_rates(0, rates, ERR));
    kvmem_transfer_options options = kv_transfer_options(&move);
    OWNED(kvmem_transfer) transfer = NULL;
    EXPECT_OK(
        kvmem_transfer_create(source->model.layout, destination->model.layout, &options, &transfer, ERR));
    GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
    return info.path;
}

TEST(the_path_follows_the_rates) {
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    OPENED(side, source, PLACE_PINNED, 0, &config, NULL, 1);
    OPENED(side, destination, PLACE_DEVICE, 0, &config, NULL, 2);
    kvmem_copy_rates rates = OPTIONS(kvmem_copy_rates, it.copy_ns = it.to_device.batch_copy_ns = 1e6,
                                     it.kernel_start_ns = 1);
    CHECK_EQ(path_by(&source, &destination, &rates), KVMEM_PATH_CUDA_KERNEL);
    kvmem_copy_rates_init(&rates, sizeof(rates));
    rates.kernel_start_ns = 1e9;
    rates.to_device.batch_copy_ns = 1e6;
    const uint32_t path = path_by(&source, &destination, &rates);
    CHECK(path == KVMEM_PATH_CUDA_COPY || path == KVMEM_PATH_CUDA_2D);
    load_defaults(0);
}
