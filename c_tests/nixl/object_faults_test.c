// SPDX-License-Identifier: Apache-2.0
// An object that is missing or short, and a store that refuses, does not respond, or is gone.
#include "object_sides.h"

REQUIRES(object_store_lacks)

/* A failed read leaves nothing in use: the transfer runs again, and the memory is freed. */
TEST(an_object_that_is_missing_is_named) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("missing/", agent);
    OPENED(model, stored);
    OPENED(kv_side, source, REF(block_config()), agent, 1);
    EACH_KV_KIND(kind) {
        kv_run(source.layout, objects, &out);
        kv_expect_moved(&stored.side, &source, &out);
        OPENED(kv_side, destination, REF(kv_config(kind)), agent, 2);
        python_send(&object_store, "drop missing/0000000004");
        OWNED(kvmem_transfer) transfer = kv_transfer(objects, destination.layout, &back);
        for (int i = 0; i < 20; i++) {
            RUN_ENDS(KVMEM_STATUS_NOT_FOUND, "read object 'missing/0000000004'", transfer);
            CHECK_HAS(test_last_message(), "the store has no such object");
        }
        kv_run(source.layout, objects, &out);
        RUN(transfer);
        kv_side_check_moved(&destination, &stored.side, &back);
    }
}

/* NIXL does not report how much of an object it has read. The checksum of the block does. */
TEST(a_short_object_fails_a_checksum) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("short/", agent);
    OPENED(kv_side, source, REF(block_config()), agent, 1);
    OPENED(kv_side, destination, REF(block_config()), agent, 2);
    kv_run(source.layout, objects, &out);
    GET(uint32_t, checksum, kvmem_layout_checksum, source.layout, &out_pairs[4].source, 1,
        KVMEM_TIMEOUT_FOREVER);
    python_send(&object_store, "cut short/0000000004");
    const kv_move one = KV_MOVE(3, {4, 4});
    OWN(kvmem_transfer, transfer, kv_prepare, objects, destination.layout,
        KV_JOB(&one, it.run.checksums = &checksum));
    RUN_ENDS(KVMEM_STATUS_CORRUPT, "corrupt", transfer);
}

TEST(a_store_that_refuses_says_so) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("refusing/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    OWNED(kvmem_transfer) write = kv_transfer(host.layout, objects, &out);
    OWNED(kvmem_transfer) read = kv_transfer(objects, host.layout, &back);
    RUN(write);
    python_send(&object_store, "deny");
    RUN_ENDS(KVMEM_STATUS_NIXL, "write object 'refusing/", write);
    CHECK_HAS(test_last_message(), "refuses the access key");
    RUN_ENDS(KVMEM_STATUS_NIXL, "read object 'refusing/", read);
    python_send(&object_store, "allow");
    RUN(write);
    RUN(read);
}

TEST(a_bucket_that_does_not_exist_is_an_error) {
    object_store_start();
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    OWN(kvmem_agent, agent, kvmem_agent_create, "storing", NULL);
    object_store_create_backend_for(agent, "no-such-bucket", NULL);
    OWNED(kvmem_layout) objects = lay_out("a", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    OWNED(kvmem_transfer) write = kv_transfer(host.layout, objects, &out);
    RUN_ENDS(KVMEM_STATUS_NIXL, "check that the bucket exists", write);
    OWNED(kvmem_transfer) read = kv_transfer(objects, host.layout, &back);
    RUN_ENDS(KVMEM_STATUS_NOT_FOUND, "or no such bucket", read);
}

/* The server is stopped: what a transfer in flight needs stays until it ends, whatever is destroyed. */
TEST(a_transfer_in_flight_holds_what_it_needs) {
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWN(kvmem_queue, queue, kvmem_queue_create);
    unsigned char *memory = test_allocate(kv_region_size(&config));
    kv_fill(memory, kv_region_size(&config), 3);
    OWNED(kvmem_layout) objects = lay_out("flight/", agent);
    kvmem_region *adopted = region_adopt_noting_release(memory, kv_region_size(&config));
    kvmem_layout *host = regions_lay_out(&config, &adopted, 1, agent);
    kvmem_region_destroy(adopted);
    const int before = releases_count();
    GET(kvmem_transfer *, write, kv_prepare, host, objects, KV_JOB(&out, it.transfer.queue = queue));
    const peer stopped = {object_store.pid, -1};
    peer_freeze(&stopped);
    EXPECT_OK(kvmem_transfer_submit(write, NULL, ERR));
    kvmem_transfer_destroy(write);
    kvmem_layout_destroy(host);
    CHECK_EQ(releases_count(), before);
    peer_thaw(&stopped);
    CHECK_EQ(next_completion(queue).status, KVMEM_STATUS_OK);
    await_releases(before + 1);
    OPENED(kv_side, destination, &config, agent, 2);
    kv_run(objects, destination.layout, &back);
    CHECK_BYTES(kv_side_piece(&destination, 1, 0, 0), memory, 288); /* block 0, by way of object 5 */
    free(memory);
}

TEST(a_run_with_a_limit_ends_while_the_store_is_silent) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("silent/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    OWN(kvmem_transfer, write, kv_prepare, host.layout, objects,
        KV_JOB(&out, it.run.run_timeout_ns = MILLISECONDS(50)));
    const peer stopped = {object_store.pid, -1};
    peer_freeze(&stopped);
    RUN_ENDS(KVMEM_STATUS_TIMED_OUT, "50 ms", write);
    CHECK_HAS(test_last_message(), "NIXL with object 'silent/0000000000' and others of the OBJ backend");
    CHECK_HAS(test_last_message(), "(bucket 'blocks', endpoint_override 'http://127.0.0.1:");
    peer_thaw(&stopped);
    CHECK_EQ(submit_when_free(write), KVMEM_STATUS_OK);
    while (kvmem_transfer_poll(write, ERR) == KVMEM_STATUS_IN_PROGRESS) sched_yield();
}

TEST(checksums_with_a_limit_end_while_the_store_is_silent) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("unsummed/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    kv_run(host.layout, objects, &out);
    const uint32_t block = out_pairs[1].destination;
    GET(uint32_t, expected, kvmem_layout_checksum, objects, &block, 1, KVMEM_TIMEOUT_FOREVER);
    uint32_t found = 5;
    EXPECT_OK(kvmem_layout_checksum(objects, &block, 1, PATIENCE, &found, ERR));
    CHECK_EQ(found, expected);
    const peer stopped = {object_store.pid, -1};
    peer_freeze(&stopped);
    EXPECT_MESSAGE(KVMEM_STATUS_TIMED_OUT, TEXT("object 'unsummed/%010u'", block),
                   kvmem_layout_checksum(objects, &block, 1, MILLISECONDS(50), &found, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_layout_checksum(objects, &block, 1, 0, &found, ERR));
    CHECK_EQ(found, expected);
    peer_thaw(&stopped);
    EXPECT_OK(kvmem_layout_checksum(objects, &block, 1, PATIENCE, &found, ERR));
}

/* The plugin repeats the request for 25 seconds, so the store is not asked as well. Cases after this one have
   another, empty store. */
TEST(a_store_that_is_gone_is_not_asked_for_the_object) {
    OWNED(kvmem_agent) agent = store_agent("storing");
    OWNED(kvmem_layout) objects = lay_out("gone/", agent);
    OPENED(kv_side, host, REF(block_config()), agent, 1);
    const kv_move one = KV_MOVE(3, {4, 4});
    OWNED(kvmem_transfer) write = kv_transfer(host.layout, objects, &one);
    RUN(write);
    object_store_kill();
    EXPECT_OK(kvmem_transfer_submit(write, NULL, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "write object 'gone/0000000004' of the OBJ backend (bucket 'blocks'",
                   kvmem_transfer_wait(write, KVMEM_TIMEOUT_FOREVER, ERR)); /* the process has a deadline */
    CHECK_HAS(test_last_message(), "the store probably does not respond, and was not asked for the object");
    object_store_restart();
    RUN(write);
}
