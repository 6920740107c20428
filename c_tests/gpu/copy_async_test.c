// SPDX-License-Identifier: Apache-2.0
// Asynchronous GPU copies: submitted again, reported once to their queue, in flight after their handles are
// destroyed, many at a time.
#include "gpu_flight.h"
#include "caller_context.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

static const kvmem_block_pair pairs[] = {{0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 4};

/* A transfer of large blocks. */
typedef flight large_flight;
#define large_flight_close flight_close
static void large_flight_open(flight *flight, place from, place to) {
    const kvmem_layout_config source = kv_large_config(&kv_kinds[0]);
    const kvmem_layout_config destination = kv_large_config(&kv_kinds[1]);
    flight_open(flight, .from = from, .to = to, .source = &source, .destination = &destination, .move = &move,
                .has_queue = true);
    flight_create(flight, it.transfer.method = 0);
}

static void expect_moved(flight *flight) {
    flight_expect_completion(flight, KVMEM_STATUS_OK);
    flight_check_moved(flight);
}

TEST(nothing_is_moved_before_the_first_submit) {
    OPENED(large_flight, flight, PLACE_PINNED, PLACE_DEVICE);
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_poll(flight.transfer, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_transfer_wait(flight.transfer, 0, ERR));
    const kvmem_transfer_info info = flight_info(&flight);
    CHECK(method_is_cuda(info.method));
    CHECK_EQ(info.bytes, NUM(pairs) * 4 * 2 * UINT64_C(32768));
    CHECK_EQ(info.bytes, flight_bytes(&flight));
    CHECK_EQ(info.duration_ns, 0);
    side_check(&flight.destination);
}

TEST_CALL(the_path_has_a_name, CHECK_STR(kvmem_method_name(KVMEM_METHOD_CUDA_COPY), "CUDA copy"))

TEST(each_submit_moves_the_current_bytes) {
    static const route routes[] = {
        {PLACE_PINNED, PLACE_DEVICE}, {PLACE_DEVICE, PLACE_SYSTEM}, {PLACE_DEVICE, PLACE_ADOPTED}};
    for (size_t route = 0; route < NUM(routes); route++) {
        OPENED(large_flight, flight, routes[route].from, routes[route].to);
        for (uint32_t seed = 0; seed < 5; seed++) {
            flight_refill(&flight, seed);
            flight_submit(&flight);
            expect_moved(&flight);
            EXPECT_OK(kvmem_transfer_poll(flight.transfer, ERR));
            EXPECT_OK(kvmem_transfer_wait(flight.transfer, 0, ERR));
        }
    }
}

TEST(the_fd_of_the_queue_becomes_readable) {
    OPENED(large_flight, flight, PLACE_PINNED, PLACE_DEVICE);
    struct pollfd ready = {.events = POLLIN};
    EXPECT_OK(kvmem_queue_get_fd(flight.queue, &ready.fd, ERR));
    CHECK_EQ(poll(&ready, 1, 0), 0);
    flight_submit(&flight);
    CHECK_EQ(poll(&ready, 1, PATIENCE_MS), 1);
    expect_moved(&flight);
    CHECK_EQ(poll(&ready, 1, 0), 0);
}

TEST(a_transfer_completes_after_its_handle_is_destroyed) {
    OPENED(large_flight, flight, PLACE_DEVICE, PLACE_PINNED);
    flight_submit(&flight);
    flight_destroy_transfer(&flight);
    expect_moved(&flight);
}

/* Builds a layout on memory of the engine, with a release callback. */
static kvmem_layout *layout_with_release(const kvmem_layout_config *config, uint64_t address) {
    OWNED(kvmem_region) region = region_adopt_on_gpu(address, kv_region_size(config), note_release);
    return regions_lay_out(config, &region, 1, NULL);
}

TEST(all_handles_can_be_destroyed_while_in_flight) {
    const kvmem_layout_config config = kv_large_config(&kv_kinds[0]);
    const size_t size = kv_region_size(&config);
    const uint64_t memory[] = {engine_allocate(0, size), engine_allocate(0, size)};
    kvmem_layout *layouts[] = {
        layout_with_release(&config, memory[0]), layout_with_release(&config, memory[1]),
    };
    GET(kvmem_queue *, queue, kvmem_queue_create);
    kv_job options = WITH(kv_job_of(&move), it.transfer.queue = queue);
    GET(kvmem_transfer *, transfer, kv_prepare, layouts[0], layouts[1], &options);
    const int before = releases_count();
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    CALL(kvmem_layout_destroy(layouts[0]));
    CALL(kvmem_queue_destroy(queue));
    CALL(kvmem_layout_destroy(layouts[1]));
    CALL(kvmem_transfer_destroy(transfer));
    await_releases(before + 2); /* after the last byte was moved, because the engine frees the memory then */
    engine_free(0, memory[0]);
    engine_free(0, memory[1]);
}

/* Each transfer moves another block, and all are in flight together. */
TEST(many_in_flight_are_each_reported_once) {
    enum { MANY = 200 };
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    const kvmem_layout_config wide = WITH(kv_config(&kv_kinds[0]), it.num_blocks = MANY);
    OPENED(flight, flight, .from = PLACE_PINNED, .to = PLACE_DEVICE, .source = &config, .destination = &wide,
           .has_queue = true);
    kvmem_transfer *transfers[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        const kvmem_block_pair pair = {i % 7, i};
        const kv_move one = {&pair, 1, 0, 0, 3};
        flight.move = &one;
        transfers[i] = flight_create_another(&flight, it.run.user_data = i);
        kv_expect_moved(&flight.destination.model, &flight.source.model, &one);
    }
    for (size_t i = 0; i < MANY; i++) EXPECT_OK(kvmem_transfer_submit(transfers[i], NULL, ERR));
    expect_each_once(flight.queue, MANY, 288);
    side_check(&flight.destination);
    for (size_t i = 0; i < MANY; i++) CALL(kvmem_transfer_destroy(transfers[i]));
}

/* More host copies than kvmem has threads for, all blocked: they read memory that is not readable yet. */
enum { BLOCKED = 40, BLOCKED_SIZE = 1 << 20 };

static int readable_pipe[2]; /* a pipe whose write end is closed when the memory is readable */

/* The handler of SIGSEGV: blocks until the memory is readable. Then the access is repeated. */
static void wait_until_readable(int number) {
    char byte;
    (void)number;
    while (read(readable_pipe[0], &byte, 1) != 0) {
    }
}

static kvmem_layout *adopted_block(void *memory) {
    const kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 1, it.num_layers = 1,
                                            it.outer_dim = 1, it.page_size = 64,
                                            it.inner_dim = BLOCKED_SIZE / it.page_size / it.dtype_width);
    CHECK_EQ(kv_region_size(&config), BLOCKED_SIZE);
    OWNED(kvmem_region) region = region_adopt(memory, BLOCKED_SIZE);
    return regions_lay_out(&config, &region, 1, NULL);
}

static void *map_memory(void) {
    void *memory = mmap(NULL, BLOCKED_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* The queue reports the end of a GPU copy while all threads that copy host memory are blocked. */
TEST(blocked_host_copies_do_not_delay_gpu_copies) {
    static const kvmem_block_pair one[] = {{0, 0}};
    const kv_move whole = {one, 1, 0, 0, 1};
    struct sigaction before;
    const struct sigaction waiting = {.sa_handler = wait_until_readable};
    OPENED(large_flight, flight, PLACE_PINNED, PLACE_DEVICE);
    CHECK_EQ(pipe(readable_pipe), 0);
    CHECK_EQ(sigaction(SIGSEGV, &waiting, &before), 0);
    void *unreadable = map_memory();
    void *written[BLOCKED];
    kvmem_layout *source = adopted_block(unreadable);
    CHECK_EQ(mprotect(unreadable, BLOCKED_SIZE, PROT_NONE), 0);
    kvmem_layout *destinations[BLOCKED];
    kvmem_transfer *blocked[BLOCKED];
    const kv_job options = kv_job_of(&whole);
    for (size_t i = 0; i < BLOCKED; i++) {
        written[i] = map_memory();
        destinations[i] = adopted_block(written[i]);
        EXPECT_OK(kv_prepare(source, destinations[i], &options, &blocked[i], ERR));
        EXPECT_OK(kvmem_transfer_submit(blocked[i], NULL, ERR));
    }
    flight_submit(&flight);
    expect_moved(&flight);
    EXPECT(KVMEM_STATUS_IN_PROGRESS, kvmem_transfer_poll(blocked[0], ERR));
    CHECK_EQ(mprotect(unreadable, BLOCKED_SIZE, PROT_READ), 0);
    CHECK_EQ(close(readable_pipe[1]), 0);
    for (size_t i = 0; i < BLOCKED; i++) {
        EXPECT_OK(kvmem_transfer_wait(blocked[i], PATIENCE, ERR));
        CALL(kvmem_transfer_destroy(blocked[i]));
        CALL(kvmem_layout_destroy(destinations[i]));
        CHECK_EQ(munmap(written[i], BLOCKED_SIZE), 0);
    }
    CALL(kvmem_layout_destroy(source));
    CHECK_EQ(sigaction(SIGSEGV, &before, NULL), 0);
    CHECK_EQ(munmap(unreadable, BLOCKED_SIZE), 0);
    CHECK_EQ(close(readable_pipe[0]), 0);
}
