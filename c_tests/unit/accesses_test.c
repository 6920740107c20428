// SPDX-License-Identifier: Apache-2.0
// Who may still read or write blocks: runs in flight, and runs that have ended at their deadline. share.accesses has peers.
#include "flight.h"
#include "gate.h"
#include "harness.h"

static const kvmem_block_pair pairs[] = {{0, 1}, {63, 0}, {5, 63}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 4};

static size_t count_of(const kvmem_layout *layout, uint32_t block) {
    GET(size_t, count, kvmem_layout_get_accesses, layout, &block, 1, NULL, 0);
    return count;
}

/* The only access to a block, by a run. */
static void expect_run(const kvmem_layout *layout, uint32_t block, uint32_t accessor, bool reads) {
    kvmem_block_access found;
    GET(size_t, count, kvmem_layout_get_accesses, layout, &block, 1, &found, 1);
    CHECK_EQ(count, 1);
    CHECK_EQ(found.block, block);
    CHECK_EQ(found.accessor, accessor);
    CHECK_EQ(found.reads, reads);
    CHECK_EQ(found.writes, !reads);
    CHECK_EQ(found.user_data, FLIGHT_USER_DATA);
    CHECK(found.pid == 0 && found.reserved == 0 && found.agent[0] == 0);
}

static void expect_runs(const flight *flight, uint32_t accessor) {
    for (size_t i = 0; i < NUM(pairs); i++) {
        expect_run(flight->source.layout, pairs[i].source, accessor, true);
        expect_run(flight->destination.layout, pairs[i].destination, accessor, false);
    }
    CHECK_EQ(count_of(flight->source.layout, 1), 0);
    CHECK_EQ(count_of(flight->destination.layout, 5), 0);
}

static void expect_nobody(const flight *flight) {
    for (size_t i = 0; i < NUM(pairs); i++) {
        CHECK_EQ(count_of(flight->source.layout, pairs[i].source), 0);
        CHECK_EQ(count_of(flight->destination.layout, pairs[i].destination), 0);
    }
}

TEST(a_run_accesses_its_blocks_until_it_ends) {
    OPENED(flight, flight, &move, 0);
    expect_nobody(&flight);
    flight_hold(&flight, 0, 0);
    expect_runs(&flight, KVMEM_ACCESSOR_RUN);
    gate_open();
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    expect_nobody(&flight);
    RUN(flight.transfer);
    expect_nobody(&flight);
}

TEST(a_transfer_that_was_destroyed_in_flight_accesses_its_blocks) {
    OPENED(flight, flight, &move, 0);
    flight_hold(&flight, 0, 0);
    DESTROYED(kvmem_transfer, flight.transfer);
    expect_runs(&flight, KVMEM_ACCESSOR_RUN);
    gate_open();
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    expect_nobody(&flight);
}

/* The caller of the late run knows from this when its blocks can be filled again, and others are free at once. */
TEST(a_run_that_has_timed_out_accesses_its_blocks_until_its_memory_is_released) {
    OPENED(flight, flight, &move, 0);
    kvmem_transfer_destroy(flight.transfer);
    flight.transfer = MADE(kvmem_transfer, kv_prepare, flight.source.layout, flight.destination.layout,
                           KV_JOB(&move, it.transfer.queue = flight.queue, it.transfer.flags = KVMEM_TRANSFER_REPORT_RELEASE,
                                  it.run.user_data = FLIGHT_USER_DATA, it.run.run_timeout_ns = SECONDS(1)));
    flight_hold(&flight, 0, 0);
    flight_expect_end(&flight, &move, FLIGHT_USER_DATA, KVMEM_STATUS_TIMED_OUT);
    expect_runs(&flight, KVMEM_ACCESSOR_ENDED_RUN);
    gate_open();
    const kvmem_completion released = next_completion(flight.queue);
    CHECK_EQ(released.kind, KVMEM_COMPLETION_MEMORY_RELEASED);
    CHECK_EQ(released.status, KVMEM_STATUS_OK);
    expect_nobody(&flight);
}

/* Blocks of another layout that has only the first half of the region, by a view of it. */
TEST(the_same_bytes_by_another_layout_are_accessed) {
    OPENED(flight, flight, &move, 0);
    OWN(kvmem_region, whole, kvmem_layout_get_region, flight.source.layout, 0);
    kvmem_layout_config config = flight.source.config;
    config.num_blocks /= 2;
    OWN(kvmem_region, view, kvmem_region_create_view, whole, 0, kv_region_size(&config));
    OWN(kvmem_layout, half, kvmem_layout_build,
        REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGIONS, it.regions = &view, it.count = 1)));
    flight_hold(&flight, 0, 0);
    expect_run(half, 0, KVMEM_ACCESSOR_RUN, true);
    expect_run(half, 5, KVMEM_ACCESSOR_RUN, true);
    CHECK_EQ(count_of(half, 31), 0);
    gate_open();
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
    CHECK_EQ(count_of(half, 0), 0);
}

TEST(two_runs_that_read_a_block_are_two_accesses_and_more_than_fit_are_counted) {
    OPENED(flight, flight, &move, 0);
    static const kvmem_block_pair again = {0, 7};
    static const kv_move other = {&again, 1, 0, 0, 4};
    OWNED(kvmem_transfer) second = flight_transfer(&flight, &other, 0, 9);
    flight_hold(&flight, 0, 0);
    EXPECT_OK(kvmem_transfer_submit(second, NULL, ERR));
    const uint32_t blocks[] = {63, 0, 1, 63};
    kvmem_block_access found[4] = {{.block = 99}, {.block = 99}, {.block = 99}, {.block = 99}};
    size_t count = 0;
    EXPECT_OK(kvmem_layout_get_accesses(flight.source.layout, blocks, NUM(blocks), found, 2, &count, ERR));
    CHECK_EQ(count, 3);
    CHECK(found[0].block == 0 && found[1].block == 0 && found[2].block == 99);
    CHECK(found[0].user_data + found[1].user_data == FLIGHT_USER_DATA + 9);
    EXPECT_OK(kvmem_layout_get_accesses(flight.source.layout, blocks, NUM(blocks), found, NUM(found), &count, ERR));
    CHECK(count == 3 && found[2].block == 63 && found[2].user_data == FLIGHT_USER_DATA && found[3].block == 99);
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(second, PATIENCE, ERR));
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    expect_nobody(&flight);
}

TEST(a_block_out_of_range_is_refused) {
    OWNED(kvmem_layout) layout = layout_allocate_system(REF(kv_config(&kv_kinds[0])));
    const uint32_t blocks[] = {0, 7};
    size_t count = 42;
    EXPECT_MESSAGE(KVMEM_STATUS_OUT_OF_RANGE, "blocks[1] is 7; the layout has 7 blocks, give ids below that",
                   kvmem_layout_get_accesses(layout, blocks, NUM(blocks), NULL, 0, &count, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "accesses is NULL, and capacity is 1",
                   kvmem_layout_get_accesses(layout, blocks, 1, NULL, 1, &count, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "blocks is NULL, and num_blocks is 2",
                   kvmem_layout_get_accesses(layout, NULL, 2, NULL, 0, &count, ERR));
    CHECK_EQ(count, 42);
    EXPECT_OK(kvmem_layout_get_accesses(layout, NULL, 0, NULL, 0, &count, ERR));
    CHECK_EQ(count, 0);
}
