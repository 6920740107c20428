// SPDX-License-Identifier: Apache-2.0
// Each driver call of a submission fails while another run is in flight. Both runs end, and later ones complete.
#include "control.h"
#include "gpu_flight.h"
#include "patience.h"

/* More driver calls than a submission makes, and many times as many failed runs as there are streams, slots and parts of staging memory. */
#define CALLS 72

static const CUresult failures[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN, CUDA_ERROR_ILLEGAL_ADDRESS,
                                    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};

typedef struct runs {
    flight held, failing;
    uint32_t method;
} runs;

static void open_flight(flight *flight, uint32_t method) {
    flight_open(flight, .from = PLACE_DEVICE, .to = PLACE_PINNED);
    flight_create(flight, it.transfer.method = method);
}

static void runs_open(runs *runs, uint32_t method) {
    SIM(sim_reset());
    runs->method = method;
    open_flight(&runs->held, method);
    open_flight(&runs->failing, method);
}

static void runs_close(runs *runs) {
    SIM(sim_reset());
    flight_close(&runs->held);
    flight_close(&runs->failing);
}

/* Waits for the end of a run, which has succeeded or has a failure of the driver. */
static void await_end(const flight *flight) {
    const kvmem_status status = kvmem_transfer_wait(flight->transfer, PATIENCE, ERR);
    if (status != KVMEM_STATUS_OK && status != KVMEM_STATUS_CUDA && status != KVMEM_STATUS_OUT_OF_MEMORY)
        FAIL("%s failed, and the run ended with %s: %s", SIM(sim_last_failed()), kvmem_status_name(status), test_last_message());
}

/* The nth call from the submission on fails: of the submitting thread, or of another that queries the run in flight. */
static void fail_call(runs *runs, uint64_t nth, CUresult result) {
    SIM(sim_reset());
    SIM(sim_hold());
    EXPECT_OK(kvmem_transfer_submit(runs->held.transfer, NULL, ERR));
    SIM(sim_fail_nth_of_all(nth, result));
    const kvmem_status submitted = kvmem_transfer_submit(runs->failing.transfer, NULL, ERR);
    const uint64_t end = patience_end();
    while (SIM(sim_last_failed()) == NULL) patience_wait(end, "a call that fails"); /* queries of the run in flight go on */
    SIM(sim_go());
    await_end(&runs->held);
    if (submitted == KVMEM_STATUS_OK) await_end(&runs->failing);
    flight_run(&runs->held);
    flight_run(&runs->failing);
}

static void fail_each_call(uint32_t method) {
    OPENED(runs, runs, method);
    for (uint64_t nth = 1; nth <= CALLS; nth++) fail_call(&runs, nth, failures[nth % NUM(failures)]);
}

TEST_CALL(single_copies, fail_each_call(KVMEM_METHOD_CUDA_COPY))
TEST_CALL(a_batch, fail_each_call(KVMEM_METHOD_CUDA_BATCH))
TEST_CALL(a_kernel, fail_each_call(KVMEM_METHOD_CUDA_KERNEL))
TEST_CALL(staged_copies, fail_each_call(KVMEM_METHOD_CUDA_STAGED))
