// SPDX-License-Identifier: Apache-2.0
// Copy rates of a GPU: measured once, saved, set, discarded, and used to select the method.
#include "gpu_flight.h"
#include "rates_blob.h"
#include "caller_context.h"

#include <math.h>

static void check_figures(const rates_blob *rates) {
    for (size_t i = 0; i < NUM_RATES; i++)
        CHECK(isfinite(rates_figure(rates, i)) && rates_figure(rates, i) > 0);
    CHECK(rates_figure(rates, RATE_TO_HOST_KERNEL) <= 4 * rates_figure(rates, RATE_TO_HOST));
    const kvmem_rates_info info = rates_info(rates);
    GET(kvmem_cuda_device_info, device, kvmem_cuda_get_device_info, 0);
    CHECK_EQ(memcmp(info.uuid, device.uuid, sizeof(info.uuid)), 0);
    CHECK_FILLED(info.peer_uuid, 0, sizeof(info.peer_uuid));
    CHECK(info.read_bytes_per_second == rates_figure(rates, RATE_TO_DEVICE));
    CHECK(info.write_bytes_per_second == rates_figure(rates, RATE_TO_HOST));
    CHECK(fabs(info.launch_ns - 1e9 * rates_figure(rates, RATE_KERNEL_START)) < 1e-6 * info.launch_ns);
}

/* Other cases rely on the default rates. */
static void load_defaults(int device) { EXPECT_OK(kvmem_cuda_use_default_rates(device, ERR)); }

TEST(rates_are_measured_once) {
    rates_set(0, NULL);
    const rates_blob first = rates_get(0);
    check_figures(&first);
    const kvmem_rates_info info = rates_info(&first);
    CHECK(info.source == KVMEM_RATES_MEASURED || info.source == KVMEM_RATES_DEFAULT);
    if (!driver_is_stand_in()) { /* rates measured with the stand-in may be implausible */
        CHECK_EQ(info.source, KVMEM_RATES_MEASURED);
        CHECK_EQ(info.num_defaults, 0);
    }
    const rates_blob second = rates_get(0);
    CHECK_EQ(second.size, first.size);
    CHECK_EQ(memcmp(first.bytes, second.bytes, first.size), 0);
    load_defaults(0);
}

TEST(creating_a_transfer_measures_the_rates) {
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    rates_set(0, NULL);
    flight_create(&flight, it.transfer.method = 0);
    flight_run(&flight);
    const rates_blob rates = rates_get(0);
    const uint32_t from = rates_info(&rates).source;
    CHECK(from != KVMEM_RATES_LOADED);
    CHECK(from == KVMEM_RATES_MEASURED || driver_is_stand_in());
    load_defaults(0);
}

TEST(rates_that_are_set_are_returned) {
    load_defaults(0);
    rates_blob given = rates_get(0);
    rates_set_figure(&given, RATE_COPY, 1234e-9);
    rates_set_figure(&given, RATE_TO_HOST, 50e9);
    rates_set(0, &given);
    const rates_blob found = rates_get(0);
    check_figures(&found);
    const kvmem_rates_info info = rates_info(&found);
    CHECK_EQ(info.source, KVMEM_RATES_LOADED);
    CHECK_EQ(info.num_defaults, 0);
    for (size_t i = 0; i < NUM_RATES; i++) CHECK(rates_figure(&found, i) == rates_figure(&given, i));
    load_defaults(0);
}

TEST(rates_are_described_without_a_gpu) {
    load_defaults(0);
    const rates_blob rates = rates_get(0);
    OWNED(kvmem_blob) text = NULL;
    EXPECT_OK(kvmem_cuda_describe_rates(rates.bytes, rates.size, NULL, &text, ERR));
    CHECK_HAS((const char *)kvmem_blob_data(text), "copy rates of the GPU with UUID ");
    CHECK_HAS((const char *)kvmem_blob_data(text), "host to GPU: 55.5 GB/s");
    CHECK_HAS((const char *)kvmem_blob_data(text), "launch of a copy kernel: 6.00 us");
}

/* Checks that setting rates fails without effect. */
static void refuse(const rates_blob *rates, kvmem_status status, const char *part) {
    const rates_blob before = rates_get(0);
    EXPECT_MESSAGE(status, part, kvmem_cuda_set_copy_rates(0, 0, rates->bytes, rates->size, ERR));
    const rates_blob after = rates_get(0);
    CHECK_EQ(memcmp(before.bytes, after.bytes, before.size), 0);
}

TEST(invalid_rates_and_rates_of_another_gpu_are_rejected) {
    load_defaults(0);
    const rates_blob good = rates_get(0);
    const double wrong[] = {-1, 0, NAN, INFINITY};
    for (size_t i = 0; i < NUM(wrong); i++) {
        rates_blob rates = good;
        rates_set_figure(&rates, RATE_CTA_ON_DEVICE, wrong[i]);
        refuse(&rates, KVMEM_STATUS_CORRUPT, "positive number");
    }
    rates_blob rates = good;
    rates.bytes[rates.size - 1] ^= 1;
    refuse(&rates, KVMEM_STATUS_CORRUPT, "checksum");
    rates = good;
    rates.size -= 8;
    refuse(&rates, KVMEM_STATUS_CORRUPT, "bytes");
    rates = good;
    rates.bytes[8] = 2; /* the version */
    rates_set_figure(&rates, RATE_COPY, rates_figure(&rates, RATE_COPY));
    refuse(&rates, KVMEM_STATUS_VERSION_MISMATCH, "version 2");
    EXPECT(KVMEM_STATUS_VERSION_MISMATCH,
           kvmem_cuda_describe_rates(rates.bytes, rates.size, NULL, NULL, ERR));
    if (driver_devices() > 1) {
        rates = rates_get(1);
        refuse(&rates, KVMEM_STATUS_INVALID_ARGUMENT, "device 0 has UUID ");
        rates = rates_get_peer(0, 1);
        refuse(&rates, KVMEM_STATUS_INVALID_ARGUMENT, "rates between two GPUs");
    }
}

TEST(missing_devices_are_rejected) {
    const rates_blob rates = rates_get(0);
    EACH_MISSING_DEVICE(missing) {
        REFUSE(KVMEM_STATUS_OUT_OF_RANGE, "", kvmem_cuda_get_copy_rates, *missing, *missing);
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_set_copy_rates(*missing, *missing, rates.bytes, rates.size, ERR));
        EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_cuda_use_default_rates(*missing, ERR));
    }
}

/* Returns the method that is selected with these rates. */
static uint32_t path_with(flight *flight, const rates_blob *rates) {
    rates_set(0, rates);
    flight_create(flight, it.transfer.method = 0);
    return flight_info(flight).method;
}

TEST(rates_determine_the_path) {
    const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {1, 6}, {3, 3});
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .move = &move);
    load_defaults(0);
    const rates_blob defaults = rates_get(0);
    rates_blob rates = defaults;
    rates_set_figure(&rates, RATE_COPY, 1e-3);
    rates_set_figure(&rates, RATE_TO_DEVICE_BATCH, 1e-3);
    rates_set_figure(&rates, RATE_KERNEL_START, 1e-9);
    CHECK_EQ(path_with(&flight, &rates), KVMEM_METHOD_CUDA_KERNEL);
    rates = defaults;
    rates_set_figure(&rates, RATE_KERNEL_START, 1);
    rates_set_figure(&rates, RATE_TO_DEVICE_BATCH, 1e-3);
    const uint32_t method = path_with(&flight, &rates);
    CHECK(method == KVMEM_METHOD_CUDA_COPY || method == KVMEM_METHOD_CUDA_2D);
    load_defaults(0);
}
