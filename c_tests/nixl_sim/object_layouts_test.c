// SPDX-License-Identifier: Apache-2.0
// Layouts in objects, over the stand-in for NIXL, by an agent with two backends for objects: which of them is
// asked about the object of a request that failed, and what the messages say.
#include "stand_in.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const kvmem_block_pair pairs[] = {{6, 3}, {0, 5}};
static const kv_move two = {pairs, NUM(pairs), 0, 0, 3};
static const kv_move one = {pairs, 1, 0, 0, 3};

/* By how many seconds the steady clock that the library reads is slow. */
static _Atomic time_t delay;

int clock_gettime(clockid_t clock, struct timespec *now) {
    const int outcome = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_MONOTONIC) now->tv_sec -= delay;
    return outcome;
}

static kvmem_agent *sim_agent(void) {
    nixl_find_stand_in();
    kvmem_agent *agent = agent_open("storing");
    EXPECT_OK(kvmem_agent_create_backend(agent, "OBJ", NULL, 0, ERR));
    EXPECT_OK(kvmem_agent_create_backend(agent, "AZURE_BLOB", NULL, 0, ERR));
    return agent;
}

static kvmem_layout *lay_out(kvmem_agent *agent) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_region) region = MADE(kvmem_region, kvmem_region_create_object,
        REF(OPTIONS(kvmem_object_options, it.key_prefix = "a/", it.object_size = kv_block_stride(&config),
                    it.count = config.num_blocks)));
    return regions_lay_out(&config, &region, 1, agent);
}

typedef struct asked {
    uint64_t obj, azure;
} asked;

static asked count_queries(void) {
    return (asked){NIXL(nixl_sim_queries("OBJ")), NIXL(nixl_sim_queries("AZURE_BLOB"))};
}

static void expect_queries(asked before, uint64_t obj, uint64_t azure) {
    const asked now = count_queries();
    CHECK_EQ(now.obj - before.obj, obj);
    CHECK_EQ(now.azure - before.azure, azure);
}

/* A run whose first request fails when it is posted. */
static void fail(kvmem_transfer *transfer, kvmem_status status, const char *part) {
    NIXL(nixl_sim_fail_post(1));
    RUN_ENDS(status, part, transfer);
}

TEST(the_backend_of_a_failed_request_is_asked_for_its_object) {
    OWNED(kvmem_agent) agent = sim_agent();
    OWNED(kvmem_layout) objects = lay_out(agent);
    OPENED(kv_side, host, REF(kv_config(&kv_kinds[0])), agent, 1);
    OWNED(kvmem_transfer) write = kv_transfer(host.layout, objects, &two);
    OWNED(kvmem_transfer) read = kv_transfer(objects, host.layout, &one);

    NIXL(nixl_sim_choose_backend("AZURE_BLOB"));
    asked before = count_queries();
    fail(write, KVMEM_STATUS_NIXL, "write object 'a/0000000003' of the AZURE_BLOB backend: ");
    CHECK_HAS(test_last_message(),
              "was asked for the object, and does not respond or refuses the access key");
    expect_queries(before, 0, 1);

    NIXL(nixl_sim_choose_backend("OBJ"));
    NIXL(nixl_sim_set_query(NIXL_SIM_QUERY_MISSING));
    before = count_queries();
    fail(read, KVMEM_STATUS_NOT_FOUND, "read object 'a/0000000006' of the OBJ backend: ");
    CHECK_HAS(test_last_message(), "the store has no such object");
    expect_queries(before, 1, 0);

    NIXL(nixl_sim_set_query(NIXL_SIM_QUERY_EXISTS));
    fail(read, KVMEM_STATUS_NIXL, "the object exists; it may be shorter");
    fail(write, KVMEM_STATUS_NIXL, "the store responds; check that the bucket exists");
}

TEST(no_backend_is_asked_if_that_of_the_request_is_unknown) {
    OWNED(kvmem_agent) agent = sim_agent();
    OWNED(kvmem_layout) objects = lay_out(agent);
    OPENED(kv_side, host, REF(kv_config(&kv_kinds[0])), agent, 1);
    OWNED(kvmem_transfer) write = kv_transfer(host.layout, objects, &two);
    NIXL(nixl_sim_choose_backend(NULL));
    const asked before = count_queries();
    fail(write, KVMEM_STATUS_NIXL, "get the backend of a request");
    expect_queries(before, 0, 0);
}

/* The limit is shorter than any run: the requests stay in flight until the case completes them. */
static void time_out(const kvmem_layout *source, const kvmem_layout *destination, const kv_move *move,
                     const char *part) {
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination,
        KV_JOB(move, it.run.run_timeout_ns = MILLISECONDS(1)));
    NIXL(nixl_sim_set_pending(1));
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, part, transfer);
    NIXL(nixl_sim_set_pending(0));
    (void)submit_when_free(transfer);
    while (kvmem_transfer_poll(transfer, ERR) == KVMEM_STATUS_IN_PROGRESS) sched_yield();
}

TEST(a_run_that_times_out_names_its_objects_and_their_stores) {
    OWNED(kvmem_agent) agent = sim_agent();
    OWNED(kvmem_layout) objects = lay_out(agent);
    OPENED(kv_side, host, REF(kv_config(&kv_kinds[0])), agent, 1);
    time_out(host.layout, objects, &two,
             "NIXL with object 'a/0000000003' and others of the AZURE_BLOB backend and the OBJ backend was not "
             "complete after 1 ms");
    time_out(objects, host.layout, &one, "NIXL with object 'a/0000000006' of the AZURE_BLOB backend");
}

/* Two objects, and memory for them, as raw descriptors. */
typedef struct raw {
    kvmem_agent *agent;
    kvmem_nixl_descriptor here[2], there[2];
    size_t count; /* of those in requests */
    kvmem_segments *local, *remote;
} raw;

static unsigned char raw_memory[2][64];

static void raw_open(raw *raw) {
    raw->agent = sim_agent();
    raw->count = NUM(raw->here);
    const kvmem_nixl_descriptor object = {.size = sizeof(raw_memory[0]), .memory_type = KVMEM_MEMORY_OBJECT};
    raw->there[0] = WITH(object, it.device_id = 7, it.metadata = "key", it.metadata_size = 3);
    raw->there[1] = WITH(object, it.device_id = 8, it.metadata = "other", it.metadata_size = 5);
    for (size_t i = 0; i < 2; i++) raw->here[i] = memory_at(raw_memory[i], sizeof(raw_memory[i]));
    EXPECT_OK(kvmem_segments_register(raw->agent, ARRAY(raw->here), NULL, &raw->local, ERR));
    EXPECT_OK(kvmem_segments_register(raw->agent, ARRAY(raw->there), NULL, &raw->remote, ERR));
    NIXL(nixl_sim_choose_backend("OBJ"));
}

static void raw_close(raw *raw) {
    kvmem_segments_destroy(raw->remote);
    kvmem_segments_destroy(raw->local);
    kvmem_agent_destroy(raw->agent);
}

static kvmem_request *raw_request(const raw *raw, uint32_t operation, const kvmem_nixl_options *options) {
    return MADE(kvmem_request, kvmem_request_create, raw->agent, operation, raw->here, "storing", raw->there,
                raw->count, options);
}

TEST(a_raw_request_that_times_out_names_its_object_and_its_backend) {
    OPENED(raw, raw);
    raw.count = 1;
    OWNED(kvmem_request) request =
        raw_request(&raw, KVMEM_REQUEST_WRITE, REF(OPTIONS(kvmem_nixl_options,
                                                           it.run_timeout_ns = MILLISECONDS(1))));
    NIXL(nixl_sim_set_pending(1));
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT,
                   "the request with object 'key' of the OBJ backend was not complete",
                   kvmem_request_wait(request, PATIENCE, ERR));
    NIXL(nixl_sim_set_pending(0));
    kvmem_status status = KVMEM_STATUS_BUSY;
    while (status == KVMEM_STATUS_BUSY) status = kvmem_request_post(request, NULL, 0, ERR);
    CHECK_EQ(status, KVMEM_STATUS_OK);
    while (kvmem_request_poll(request, ERR) == KVMEM_STATUS_IN_PROGRESS) sched_yield();
}

static void expect_failure(kvmem_request *request, kvmem_status status, const char *part) {
    EXPECT_OK(kvmem_request_post(request, NULL, 0, ERR));
    EXPECT_MESSAGE(status, part, kvmem_request_wait(request, PATIENCE, ERR));
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_request_post(request, NULL, 0, ERR));
}

/* Its end says that nothing uses the memory any more. */
TEST(a_failed_raw_request_for_one_object_is_released_and_names_the_object) {
    OPENED(raw, raw);
    OWN(kvmem_prepared, here, kvmem_prepared_create, raw.agent, NULL, ARRAY(raw.here), NULL);
    OWN(kvmem_prepared, there, kvmem_prepared_create, raw.agent, "storing", ARRAY(raw.there), NULL);
    OWN(kvmem_request, made, kvmem_request_make, KVMEM_REQUEST_READ, here, REF((uint32_t){1}), there,
        REF((uint32_t){1}), 1, NULL);
    raw.count = 1;
    OWNED(kvmem_request) created = raw_request(&raw, KVMEM_REQUEST_WRITE, NULL);
    const uint64_t alive = NIXL(nixl_sim_get_requests()).alive;

    NIXL(nixl_sim_fail_post(1));
    expect_failure(created, KVMEM_STATUS_NIXL, "write object 'key' of the OBJ backend");
    CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, alive - 1);

    NIXL(nixl_sim_set_query(NIXL_SIM_QUERY_MISSING));
    NIXL(nixl_sim_set_pending(1));
    NIXL(nixl_sim_fail_status(1));
    expect_failure(made, KVMEM_STATUS_NOT_FOUND, "read object 'other' of the OBJ backend");
    CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, alive - 2);
}

/* Two requests that were posted 20 seconds ago. */
typedef struct queued {
    kvmem_request *requests[2];
} queued;

static void queued_open(queued *queued, const raw *raw) {
    NIXL(nixl_sim_set_pending(1));
    delay = 20;
    for (size_t i = 0; i < NUM(queued->requests); i++) {
        queued->requests[i] = raw_request(raw, KVMEM_REQUEST_READ, NULL);
        EXPECT_OK(kvmem_request_post(queued->requests[i], NULL, 0, ERR));
    }
    while (NIXL(nixl_sim_get_requests()).in_flight < NUM(queued->requests)) sched_yield();
    delay = 0;
}

static void queued_close(queued *queued) {
    for (size_t i = 0; i < NUM(queued->requests); i++) kvmem_request_destroy(queued->requests[i]);
}

/* One of them succeeds now, by a backend. Returns the other one. */
static kvmem_request *complete_one(const queued *queued, const char *plugin) {
    NIXL(nixl_sim_choose_backend(plugin));
    NIXL(nixl_sim_complete_one());
    for (size_t i = 0;; i = (i + 1) % NUM(queued->requests)) {
        const kvmem_status status = kvmem_request_poll(queued->requests[i], ERR);
        if (status == KVMEM_STATUS_OK) return queued->requests[(i + 1) % NUM(queued->requests)];
        CHECK_EQ(status, KVMEM_STATUS_IN_PROGRESS);
        sched_yield();
    }
}

static void fail_in_flight(kvmem_request *request, kvmem_status status, const char *part) {
    NIXL(nixl_sim_choose_backend("OBJ"));
    NIXL(nixl_sim_fail_status(1));
    EXPECT_MESSAGE(status, part, kvmem_request_wait(request, PATIENCE, ERR));
    NIXL(nixl_sim_set_pending(0));
}

/* It may have waited for requests that were posted before it. */
TEST(a_store_that_completed_another_request_since_is_asked_for_the_object) {
    OPENED(raw, raw);
    raw.count = 1;
    NIXL(nixl_sim_set_query(NIXL_SIM_QUERY_MISSING));
    OPENED(queued, queued, &raw);
    kvmem_request *const other = complete_one(&queued, "OBJ");
    const asked before = count_queries();
    fail_in_flight(other, KVMEM_STATUS_NOT_FOUND, "the store has no such object");
    expect_queries(before, 1, 0);
}

TEST(a_store_that_has_been_silent_is_not_asked_though_another_one_is_not) {
    OPENED(raw, raw);
    raw.count = 1;
    NIXL(nixl_sim_set_query(NIXL_SIM_QUERY_MISSING));
    OPENED(queued, queued, &raw);
    kvmem_request *const other = complete_one(&queued, "AZURE_BLOB");
    const asked before = count_queries();
    fail_in_flight(other, KVMEM_STATUS_NIXL, "no request was completed for 20 s");
    expect_queries(before, 0, 0);
}

/* The backend may still access the memory of the object whose part has not failed. The case is the last: the
   agent stays. */
TEST(a_failed_raw_request_for_two_objects_is_not_released) {
    OPENED(raw, raw);
    OWNED(kvmem_request) request = raw_request(&raw, KVMEM_REQUEST_READ, NULL);
    const uint64_t alive = NIXL(nixl_sim_get_requests()).alive;
    NIXL(nixl_sim_fail_post(1));
    expect_failure(request, KVMEM_STATUS_NIXL, "post a request");
    CHECK_EQ(NIXL(nixl_sim_get_requests()).alive, alive);
}
