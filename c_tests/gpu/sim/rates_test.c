// SPDX-License-Identifier: Apache-2.0
// Driver calls that fail while rates are measured: the rates are still complete, and nothing is leaked.
#include "control.h"
#include "gpu_flight.h"
#include "rates_blob.h"
#include "caller_context.h"

#include <stdatomic.h>

static kvmem_rates_info measure(void) {
    rates_set(0, NULL);
    const rates_blob rates = rates_get(0);
    return rates_info(&rates);
}

/* If one of these calls fails, nothing can be measured. */
TEST(rates_that_cannot_be_measured_are_defaults) {
    static const char *const needed[] = {
        "cuMemCreate",   "cuMemHostRegister_v2", "cuStreamCreateWithPriority", "cuEventCreate",
        "cuEventRecord", "cuEventQuery",         "cuEventElapsedTime",         "cuMemcpyAsync",
    };
    const sim_counts before = sim_live_now();
    for (size_t i = 0; i < NUM(needed); i++) {
        SIM(sim_reset());
        SIM(sim_fail(needed[i], SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
        const kvmem_rates_info rates = measure();
        CHECK_EQ(rates.source, KVMEM_RATES_DEFAULT);
        CHECK_EQ(rates.num_defaults, NUM_RATES);
        SIM(sim_reset());
        await_live(&before);
    }
}

/* For any thread: without a check of the current context. */
static kvmem_status create(const flight *flight, uint32_t method) {
    const kv_job options = WITH(flight_options(flight), it.transfer.method = method);
    kvmem_transfer *transfer = NULL;
    const kvmem_status status = kv_prepare(flight->source.model.layout,
                                                      flight->destination.model.layout,
                                                      &options, &transfer, NULL);
    kvmem_transfer_destroy(transfer);
    return status;
}

static kvmem_rates_info known_rates(void) {
    const rates_blob rates = rates_get(0);
    return rates_info(&rates);
}

/* Creates transfers until the rates are not the defaults. Returns their number. */
static unsigned create_until_measured(const flight *flight) {
    unsigned created = 0;
    while (known_rates().source == KVMEM_RATES_DEFAULT && created < 100) {
        EXPECT_OK(create(flight, KVMEM_METHOD_CUDA_COPY));
        created++;
    }
    return created;
}

/* Later transfers repeat it, but not each of them. */
TEST(a_failed_measurement_is_repeated) {
    SIM(sim_reset());
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    SIM(sim_fail("cuEventElapsedTime", SIM_EVERY_CALL, CUDA_ERROR_OUT_OF_MEMORY));
    CHECK_EQ(measure().source, KVMEM_RATES_DEFAULT);
    SIM(sim_reset());
    CHECK_EQ(known_rates().source, KVMEM_RATES_DEFAULT); /* queries do not measure again */
    CHECK_EQ(create_until_measured(&flight), 17);
    const uint64_t copies = SIM(sim_calls("cuMemcpyAsync"));
    for (int i = 0; i < 100; i++) EXPECT_OK(create(&flight, KVMEM_METHOD_CUDA_COPY));
    CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), copies);
}

/* One call fails, at once or when its work runs. */
TEST(a_failure_while_measuring_leaks_nothing) {
    static const struct {
        const char *function;
        uint64_t nth;
        bool later;
    } failures[] = {
        {"cuMemcpyAsync", 1, true},         {"cuMemcpyAsync", 5, false},
        {"cuMemcpyBatchAsync", 2, false},   {"cuMemcpyBatchAsync", 1, true},
        {"cuLaunchKernel", 1, false},       {"cuLaunchKernel", 3, true},
        {"cuLinkCreate_v2", 1, false},      {"cuLinkAddData_v2", 1, false},
        {"cuLinkComplete", 1, false},       {"cuLinkDestroy", 1, false},
        {"cuModuleLoadData", 1, false},     {"cuModuleGetFunction", 1, false},
        {"cuCtxPushCurrent_v2", 9, false},  {"cuEventQuery", 4, false},
        {"cuStreamQuery", 1, false},        {"cuMemUnmap", 1, false},
        {"cuMemMap", 1, false},             {"cuCtxRecordEvent", 1, false},
    };
    const sim_counts before = sim_live_now();
    for (size_t i = 0; i < NUM(failures); i++) {
        SIM(sim_reset());
        (failures[i].later ? SIM(sim_fail_later) : SIM(sim_fail))(failures[i].function, failures[i].nth,
                                                                   CUDA_ERROR_LAUNCH_FAILED);
        measure();
        SIM(sim_reset());
        await_live(&before);
    }
}

/* The bytes that one measurement copies by cuMemcpyAsync, in MiB. */
static uint64_t measured_mib(void) {
    const uint64_t before = SIM(sim_copied());
    CHECK_EQ(measure().source, KVMEM_RATES_MEASURED);
    return (SIM(sim_copied()) - before) / MIB;
}

/* Copies within a GPU exceed its cache, unless there is no memory for that. */
TEST(rates_within_a_gpu_do_not_depend_on_its_cache) {
    const sim_counts before = sim_live_now();
    SIM(sim_reset());
    const uint64_t small = measured_mib();
    SIM(sim_set_attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 16 << 20));
    /* Five rounds with 96 MiB instead of 48. */
    CHECK_EQ(measured_mib() - small, 5 * 48);
    SIM(sim_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY));
    CHECK_EQ(measured_mib(), small);
    SIM(sim_reset());
    await_live(&before);
}

TEST(without_the_kernel_the_other_rates_are_measured) {
    const sim_counts before = sim_live_now();
    SIM(sim_reset());
    SIM(sim_fail("cuModuleLoadData", SIM_EVERY_CALL, CUDA_ERROR_NO_BINARY_FOR_GPU));
    const kvmem_rates_info rates = measure();
    CHECK(rates.num_defaults >= 7); /* those of the kernel */
    SIM(sim_reset());
    await_live(&before);
}

TEST(measuring_does_not_wait_for_other_work) {
    SIM(sim_reset());
    measure();
    CHECK_EQ(SIM(sim_calls("cuCtxSynchronize")), 0);
    CHECK_EQ(SIM(sim_calls("cuStreamSynchronize")), 0);
    const uint64_t copies = SIM(sim_calls("cuMemcpyAsync"));
    rates_get(0);
    CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), copies); /* measured once */
}

static kvmem_rates_info measure_peer(void) {
    rates_set_peer(0, 1, NULL);
    const rates_blob rates = rates_get_peer(0, 1);
    return rates_info(&rates);
}

/* One call fails: each of the first ones, which prepare the measurement, and some later ones. */
TEST(a_failure_while_measuring_peer_rates_leaks_nothing) {
    const sim_counts before = sim_live_now();
    bool has_failed = true;
    for (uint64_t nth = 1; has_failed; nth += nth < 60 ? 1 : 97) {
        SIM(sim_reset());
        kvmem_blob *rates = NULL;
        rates_set_peer(0, 1, NULL);
        SIM(sim_fail_nth_of_all(nth, CUDA_ERROR_LAUNCH_FAILED));
        const kvmem_status status = kvmem_cuda_get_copy_rates(0, 1, &rates, ERR);
        CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_CUDA); /* without a context */
        CHECK((status == KVMEM_STATUS_OK) == (rates != NULL));
        kvmem_blob_destroy(rates);
        has_failed = SIM(sim_last_failed()) != NULL;
        SIM(sim_reset());
        await_live(&before);
    }
}

/* Copies of the driver go through the host and are measured. Kernels cannot access the peer. */
TEST(without_peer_access_no_kernel_is_measured) {
    const sim_counts before = sim_live_now();
    SIM(sim_reset());
    SIM(sim_set_peer_access(false));
    CHECK(measure_peer().num_defaults >= 4);
    CHECK_EQ(SIM(sim_calls("cuLaunchKernel")), 0);
    CHECK(SIM(sim_calls("cuMemcpyAsync")) > 0);
    SIM(sim_reset());
    measure_peer();
    CHECK(SIM(sim_calls("cuLaunchKernel")) > 0);
    CHECK_EQ(SIM(sim_calls("cuCtxEnablePeerAccess")), 0); /* it would affect other users of the context */
    const uint64_t copies = SIM(sim_calls("cuMemcpyAsync"));
    rates_get_peer(0, 1);
    CHECK_EQ(SIM(sim_calls("cuMemcpyAsync")), copies); /* measured once */
    SIM(sim_reset());
    await_live(&before);
}

/* For a log callback that calls kvmem. */
typedef struct caller {
    const flight *flight;
    kvmem_status expected; /* of creating transfers that need the kernel */
    atomic_uint messages, failures;
} caller;

static void call_kvmem(uint32_t level, const char *target, const char *message, void *user_data) {
    caller *mine = user_data;
    (void)level, (void)target, (void)message;
    kvmem_blob *rates = NULL;
    mine->failures += kvmem_cuda_get_copy_rates(0, 0, &rates, NULL) != KVMEM_STATUS_OK;
    kvmem_blob_destroy(rates);
    mine->failures += create(mine->flight, KVMEM_METHOD_CUDA_KERNEL) != mine->expected;
    mine->failures += create(mine->flight, KVMEM_METHOD_CUDA_STAGED) != mine->expected;
    mine->messages++;
}

/* Only for warnings and errors, so that the callback runs after the planned failure. */
static void set_callback(caller *caller) {
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_WARN, call_kvmem, caller, ERR));
}

/* Waits until the callback has returned, and checks its calls. */
static void expect_called(caller *caller) {
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK(caller->messages > 0);
    CHECK_EQ(caller->failures, 0);
}

/* Failures to free are logged, also while rates are measured and while the kernel is loaded. Other threads
   wait for both. */
TEST(a_log_callback_may_call_kvmem_while_rates_are_measured) {
    static const char *const failing[] = {"cuEventDestroy_v2", "cuMemAddressFree", "cuMemHostUnregister"};
    for (size_t i = 0; i <= NUM(failing); i++) {
        SIM(sim_reset());
        OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
        caller caller = {.flight = &flight};
        if (i < NUM(failing)) {
            SIM(sim_fail(failing[i], 1, CUDA_ERROR_LAUNCH_FAILED));
            set_callback(&caller);
            measure();
        } else {
            caller.expected = KVMEM_STATUS_CUDA; /* the failure is remembered */
            set_callback(&caller);
            SIM(sim_fail("cuModuleGetFunction", 1, CUDA_ERROR_NOT_FOUND));
            SIM(sim_fail("cuModuleUnload", 1, CUDA_ERROR_LAUNCH_FAILED));
            EXPECT(KVMEM_STATUS_CUDA, create(&flight, KVMEM_METHOD_CUDA_KERNEL));
        }
        expect_called(&caller);
    }
}
