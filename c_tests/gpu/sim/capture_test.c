// SPDX-License-Identifier: Apache-2.0
// Captures of the engine: the one question that invalidates them (cuCtxRecordEvent) is not put while kvmem
// can know of one.
#include "busy.h"
#include "control.h"
#include "gpu_flight.h"
#include "patience.h"
#include "rates_blob.h"
#include "caller_context.h"

#include <dirent.h>
#include <sched.h>

/* A stream that is being captured, and a transfer that may be needed in the graph. The kernels are not
   loaded. */
typedef struct capture {
    flight flight;
    stream stream;
    uint64_t asked; /* how often the question was put before */
} capture;

static void capture_open(capture *capture, unsigned stream_flags) {
    SIM(sim_reset());
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
    flight_open(&capture->flight, .from = PLACE_PINNED, .to = PLACE_DEVICE);
    stream_open_with(&capture->stream, 0, stream_flags);
}

static void capture_close(capture *capture) {
    flight_close(&capture->flight);
    stream_close(&capture->stream);
}

static void begin(capture *capture) {
    stream_begin_capture(&capture->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    capture->asked = SIM(sim_calls("cuCtxRecordEvent"));
}

/* Ends the capture, which is valid, and compares what a launch of the graph has moved. */
static void end(capture *capture) {
    CHECK_EQ(SIM(sim_calls("cuCtxRecordEvent")), capture->asked);
    CUgraphExec graph = stream_end_capture(&capture->stream);
    flight_refill(&capture->flight, 5);
    stream_launch(&capture->stream, graph);
    flight_check_moved(&capture->flight);
    stream_destroy_graph(&capture->stream, graph);
}

/* Creates the transfer in the capture, and submits it. */
static kvmem_status start(capture *capture, uint32_t method, kvmem_error **error) {
    flight *flight = &capture->flight;
    const kv_job job = WITH(flight_options(flight), it.transfer.method = method);
    flight_destroy_transfer(flight);
    EXPECT_OK(kvmem_transfer_create(flight->source.model.layout, flight->destination.model.layout,
                                    &job.transfer,
                                    &flight->transfer, ERR));
    return kvmem_transfer_submit_on_stream(flight->transfer, &job.run, capture->stream.handle, error);
}

static kvmem_region *device_region(uint64_t *address) {
    kvmem_region *region = NULL;
    EXPECT_OK(kvmem_region_create_device(REF(OPTIONS(kvmem_device_options, it.size = MIB)), &region, ERR));
    *address = region_info(region).address;
    return region;
}

static void await_free(uint64_t address) {
    const uint64_t end = patience_end();
    while (driver_memory_type(address) != 0) patience_wait(end, "memory to be freed after the capture");
}

/* The best method that needs no kernel. */
TEST(a_transfer_that_is_created_in_a_capture_takes_a_method_without_a_kernel) {
    OPENED(capture, capture, CU_STREAM_NON_BLOCKING);
    begin(&capture);
    EXPECT_OK(start(&capture, 0, ERR));
    const kvmem_compared_method explanation = flight_explain(&capture.flight, "is being captured");
    CHECK(explanation.method != KVMEM_METHOD_CUDA_KERNEL && explanation.method != KVMEM_METHOD_CUDA_STAGED);
    end(&capture);
}

TEST(a_kernel_that_is_requested_in_a_capture_is_refused_without_harm) {
    OPENED(capture, capture, CU_STREAM_NON_BLOCKING);
    begin(&capture);
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "is being captured", start(&capture, KVMEM_METHOD_CUDA_KERNEL, ERR));
    EXPECT_OK(start(&capture, KVMEM_METHOD_CUDA_COPY, ERR));
    end(&capture);
}

/* The transfer was created beside work that prevented loading the kernel. */
TEST(pairs_that_are_submitted_in_a_capture_load_no_kernel) {
    OPENED(capture, capture, CU_STREAM_NON_BLOCKING);
    busy busy = {0};
    busy_begin(&busy, BUSY_ONE);
    flight_create(&capture.flight, it.transfer.method = 0);
    busy_end(&busy);
    begin(&capture);
    const kvmem_submit_options pairs = OPTIONS(kvmem_submit_options, it.pairs = scattered_move.pairs,
                                               it.num_pairs = scattered_move.num_pairs);
    EXPECT_OK(kvmem_transfer_submit_on_stream(capture.flight.transfer, &pairs, capture.stream.handle, ERR));
    flight_explain(&capture.flight, "is being captured");
    end(&capture);
}

/* Whether a thread of kvmem loads a kernel. */
static bool is_loading(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    bool found = false;
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        char path[64], name[16] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (file == NULL) continue;
        found |= fgets(name, sizeof(name), file) != NULL && strcmp(name, "kvmem-load\n") == 0;
        fclose(file);
    }
    closedir(tasks);
    return found;
}

/* The call that began it has returned, so kvmem cannot know of the capture: the code is loaded for a later call. */
TEST(a_compilation_that_ends_in_a_capture_does_no_harm) {
    OPENED(capture, capture, CU_STREAM_NON_BLOCKING);
    SIM(sim_hold_call("cuLinkComplete"));
    flight_create(&capture.flight, it.transfer.method = 0);
    CHECK(flight_info(&capture.flight).method != KVMEM_METHOD_CUDA_KERNEL);
    while (SIM(sim_held_calls()) == 0) sched_yield(); /* only the deadline of the process limits this */
    begin(&capture);
    SIM(sim_go_calls());
    const uint64_t until = patience_end();
    while (is_loading()) patience_wait(until, "the compilation to end");
    EXPECT_OK(kvmem_transfer_submit_on_stream(capture.flight.transfer, NULL, capture.stream.handle, ERR));
    end(&capture);
    const uint64_t compilations = SIM(sim_calls("cuLinkComplete"));
    flight_create(&capture.flight, it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    flight_run(&capture.flight);
    CHECK_EQ(SIM(sim_calls("cuLinkComplete")), compilations);
}

/* Rates can't be measured without the kernel. kvmem does not know of the capture, asks once, and does not
   wait for the end. */
TEST(rates_that_are_queried_in_a_capture_are_refused_at_once) {
    OPENED(capture, capture, CU_STREAM_NON_BLOCKING);
    rates_set(0, NULL);
    begin(&capture);
    kvmem_blob *blob = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "not measured yet", kvmem_cuda_get_copy_rates(0, 0, &blob, ERR));
    CHECK_EQ(SIM(sim_calls("cuCtxRecordEvent")), capture.asked + 1);
    CUgraph graph = NULL;
    enter_device(0);
    CHECK_EQ(driver_get()->cuStreamEndCapture(capture.stream.handle, &graph),
             CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    leave_device(0);
    EXPECT_OK(kvmem_cuda_use_default_rates(0, ERR));
}

/* The driver reports such a capture, so kvmem knows of it without a part in it. */
TEST(a_capture_of_a_blocking_stream_is_found_without_harm) {
    OPENED(capture, capture, 0);
    uint64_t address = 0;
    kvmem_region *region = device_region(&address);
    begin(&capture);
    DESTROYED(kvmem_region, region);
    CHECK(driver_memory_type(address) != 0);
    flight_refuse(&capture.flight, KVMEM_STATUS_BUSY, "is being captured",
                  it.transfer.method = KVMEM_METHOD_CUDA_KERNEL);
    EXPECT_OK(start(&capture, 0, ERR));
    end(&capture);
    await_free(address);
}
