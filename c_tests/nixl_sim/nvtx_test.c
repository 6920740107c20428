// SPDX-License-Identifier: Apache-2.0
// Runs are ranges in the timeline of a profiler, by NVTX.
#include "flight.h"
#include "nvtx_sim.h"
#include "stand_in.h"

#include <stdatomic.h>

static const kvmem_block_pair pairs[] = {{0, 1}, {63, 0}, {5, 63}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 4};
#define BYTES (NUM(pairs) * 4 * 2 * 32768)

static void expect_range(size_t index, const char *message, uint64_t payload, bool has_ended) {
    const nvtx_sim_range range = nvtx_sim_get(index);
    CHECK_STR(range.message, message);
    CHECK_EQ(range.payload, payload);
    CHECK_EQ(range.has_ended, has_ended);
}

TEST(each_run_is_a_range_from_its_submission_to_its_end) {
    OPENED(flight, flight, &move, 0);
    const size_t before = nvtx_sim_count();
    flight_hold(&flight, 0, 0);
    CHECK_EQ(nvtx_sim_count(), before + 1);
    expect_range(before, "memcpy host_to_host", BYTES, false);
    EXPECT(KVMEM_STATUS_BUSY, kvmem_transfer_submit(flight.transfer, NULL, ERR));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    expect_range(before, "memcpy host_to_host", BYTES, true);
    RUN(flight.transfer);
    CHECK_EQ(nvtx_sim_count(), before + 2);
    expect_range(before + 1, "memcpy host_to_host", BYTES, true);
}

TEST(a_late_run_is_a_range_until_its_deadline) {
    OPENED(flight, flight, &move, 0);
    const size_t before = nvtx_sim_count();
    flight_hold_late(&flight, &move);
    flight_expect_end(&flight, &move, FLIGHT_USER_DATA, KVMEM_STATUS_TIMED_OUT);
    CHECK_EQ(nvtx_sim_count(), before + 1);
    expect_range(before, "memcpy host_to_host", BYTES, true);
    gate_open();
    /* Its memory is in use until it has read the source. Submissions that fail are no ranges. */
    CHECK_EQ(submit_when_free(flight.transfer), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(nvtx_sim_count(), before + 2);
    expect_range(before + 1, "memcpy host_to_host", BYTES, true);
}

static kvmem_transfer *asked;
static atomic_size_t replies;

static void ask(void) {
    const kvmem_status status = kvmem_transfer_wait(asked, 0, NULL);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_TIMED_OUT);
    atomic_fetch_add(&replies, 1);
}

/* At the end of a run, and at its deadline. */
TEST(a_profiler_may_ask_for_the_run_that_it_shows) {
    OPENED(flight, flight, &move, 0);
    RUN(flight.transfer);
    asked = flight.transfer;
    nvtx_sim_call(ask);
    RUN(flight.transfer);
    CHECK_EQ(atomic_load(&replies), 2);
    flight_hold_late(&flight, &move);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(atomic_load(&replies), 4);
    nvtx_sim_call(NULL);
    gate_open();
    CHECK_EQ(submit_when_free(flight.transfer), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
}

TEST(each_run_of_a_request_is_a_range) {
    nixl_find_stand_in();
    static unsigned char memory[8192];
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    agents_introduce(near, far);
    const kvmem_nixl_descriptor local = memory_at(memory, 4096), remote = memory_at(memory + 4096, 4096);
    OWN(kvmem_segments, segments, kvmem_segments_register, near, &local, 1, NULL);
    OWN(kvmem_request, request, kvmem_request_create, near, KVMEM_REQUEST_READ, &local, "far", &remote, 1, NULL);
    const size_t before = nvtx_sim_count();
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
    CHECK_EQ(nvtx_sim_count(), before + 1);
    expect_range(before, "request pull", 4096, true);
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    CHECK_EQ(nvtx_sim_count(), before + 2);
    expect_range(before + 1, "request pull", 4096, false);
    NIXL(nixl_sim_set_pending(0));
    EXPECT_OK(kvmem_request_wait(request, PATIENCE, ERR));
    expect_range(before + 1, "request pull", 4096, true);
    CHECK_EQ(nvtx_sim_count(), before + 2);
}
