// SPDX-License-Identifier: Apache-2.0
// Transfers to and from another process by block id, byte by byte, with notifications.
#include "harness.h"

KV_PEER_ROLE

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};
static const kv_move some_layers = {scattered, NUM(scattered), 2, 0, 1};

static void check_info(const kvmem_transfer_info *info, const kv_move *move, uint32_t method) {
    CHECK_EQ(info->method, method);
    CHECK_EQ(info->num_pieces, move->num_pairs * move->num_layers * 2);
    CHECK_EQ(info->bytes, info->num_pieces * 48);
    CHECK(info->num_moves >= 1 && info->num_moves <= info->num_pieces);
    CHECK(info->num_requests >= 1);
}

static void write_to_peer(kv_side *local, kv_peer *peer, const kv_move *move) {
    const kvmem_transfer_info info = kv_run(local->layout, peer->model.layout, move);
    check_info(&info, move, KVMEM_METHOD_NIXL);
    kv_expect_moved(&peer->model, local, move);
    kv_peer_check(peer);
    kv_side_check(local);
}

static void read_from_peer(kv_side *local, kv_peer *peer, const kv_move *move) {
    const kvmem_transfer_info info = kv_run(peer->model.layout, local->layout, move);
    check_info(&info, move, KVMEM_METHOD_NIXL);
    kv_side_check_moved(local, &peer->model, move);
    kv_peer_check(peer);
}

static void to_and_from_peer(kv_side *local, kv_peer *peer) {
    write_to_peer(local, peer, &all_layers);
    read_from_peer(local, peer, &some_layers);
    read_from_peer(local, peer, &all_layers);
    write_to_peer(local, peer, &some_layers);
}

TEST_CALL(every_pair_of_kinds_is_read_and_written, kv_peer_each_kind(to_and_from_peer))

static kvmem_transfer *create_with_notification(const kvmem_layout *source, const kvmem_layout *destination,
                                                const void *data, size_t size) {
    return MADE(kvmem_transfer, kv_prepare, source, destination,
                KV_JOB(&all_layers, it.run.notification = data, it.run.notification_size = size));
}

/* Submits twice: each run sends its notification, though no thread polls the transfer. */
static void run_twice(kvmem_transfer *transfer, kv_peer *peer, const void *data, size_t size) {
    for (int run = 0; run < 2; run++) {
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
        kv_peer_expect_notification(peer, "near", data, size);
        EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
        kv_peer_check(peer);
    }
    kvmem_transfer_destroy(transfer);
}

TEST(the_peer_is_notified_after_the_bytes_arrived) {
    static const unsigned char note[] = {'d', 'o', 'n', 'e', 0, 0xFF};
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(kv_meeting, met, "near", "far", &config, &config);
    unsigned char gone[sizeof(note)];
    memcpy(gone, note, sizeof(note));
    kvmem_transfer *write =
        create_with_notification(met.side.layout, met.peer.model.layout, gone, sizeof(gone));
    memset(gone, 0, sizeof(gone)); /* it was copied */
    kv_expect_moved(&met.peer.model, &met.side, &all_layers);
    run_twice(write, &met.peer, note, sizeof(note));
    kvmem_transfer *read =
        create_with_notification(met.peer.model.layout, met.side.layout, note, sizeof(note));
    run_twice(read, &met.peer, note, sizeof(note));
    kv_side_check_moved(&met.side, &met.peer.model, &all_layers);
}

TEST(layers_complete_in_order_and_the_peer_is_notified_once) {
    static const char note[] = "all layers";
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(kv_meeting, met, "near", "far", &config, &config);
    kv_job options = kv_job_of(&all_layers);
    options.transfer.flags = KVMEM_TRANSFER_BY_LAYER;
    GET(kvmem_transfer *, transfer, kv_prepare, met.side.layout, met.peer.model.layout, &options);
    for (int run = 0; run < 20; run++) { /* cancelled in time or not, it can run again */
        EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
        EXPECT_OK(kvmem_transfer_cancel(transfer, ERR));
        const kvmem_status status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
        const uint64_t layers = transfer_info(transfer).layers_moved;
        CHECK(status == KVMEM_STATUS_OK ? layers == 3 : status == KVMEM_STATUS_CANCELLED && layers < 3);
    }
    kvmem_transfer_destroy(transfer);
    options.run.notification = note;
    options.run.notification_size = sizeof(note);
    EXPECT_OK(kv_prepare(met.side.layout, met.peer.model.layout, &options, &transfer, ERR));
    kv_expect_moved(&met.peer.model, &met.side, &all_layers);
    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
    for (uint64_t layer = 1; layer <= 3; layer++)
        EXPECT_OK(kvmem_transfer_wait_layers(transfer, layer, PATIENCE, ERR));
    kv_peer_expect_notification(&met.peer, "near", note, sizeof(note));
    EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
    kv_peer_check(&met.peer);
    run_twice(transfer, &met.peer, note, sizeof(note));
}

/* What no blocks change is reported when the transfer is created. */
TEST(layouts_that_no_agent_has_both_of_fail_at_once) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(kv_meeting, met, "near", "far", &config, &config);
    OWNED(kvmem_agent) other = agent_open("other");
    OPENED(kv_side, alone, &config, NULL, 1);
    OPENED(kv_side, of_other, &config, other, 1);
    const kvmem_layout *far = met.peer.model.layout;
    REFUSE(KVMEM_STATUS_INVALID_STATE, "the system layout has no agent", kvmem_transfer_create, far, alone.layout, NULL);
    REFUSE(KVMEM_STATUS_INVALID_STATE, "build it with agent 'near'", kvmem_transfer_create, alone.layout, far, NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "one agent must know both", kvmem_transfer_create, far, of_other.layout, NULL);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "omit these flags", kvmem_transfer_create, far, met.side.layout,
           REF(OPTIONS(kvmem_transfer_options, it.flags = KVMEM_TRANSFER_ZERO_COPY)));
}

TEST(an_agent_does_not_import_its_own_layout) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OWNED(kvmem_agent) agent = agent_open("owner");
    OPENED(kv_side, side, &config, agent, 1);
    OWN(kvmem_blob, descriptor, kvmem_layout_export, side.layout);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "'owner' is the agent itself", kvmem_layout_import, agent,
           kvmem_blob_data(descriptor), kvmem_blob_size(descriptor));
    CHECK_HAS(test_last_message(), "need different names");
}

/* Each step has its own pairs and notification. A plain submission repeats both, and one that fails changes
   neither. */
TEST(each_step_notifies_the_peer_of_its_own_blocks) {
    static const kvmem_block_pair one[] = {{3, 5}}, more[] = {{0, 1}, {1, 0}, {6, 6},
                                                              {2, 3}}, twice[] = {{0, 4}, {1, 4}};
    const kv_move moves[] = {all_layers, {one, NUM(one), 0, 0, 3}, {more, NUM(more), 0, 0, 3}};
    const char *const notes[] = {"first", NULL, "third, which is longer"};
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    for (int by_layer = 0; by_layer < 2; by_layer++) {
        OPENED(kv_meeting, met, "near", "far", &config, &config);
        OWN(kvmem_transfer, transfer, kv_prepare, met.side.layout, met.peer.model.layout,
            REF(WITH(kv_job_of(&all_layers), it.run.notification = "none but from create",
                     it.run.notification_size =
                         20, it.transfer.flags = by_layer ? KVMEM_TRANSFER_BY_LAYER : 0)));
        for (size_t i = 0; i < 3 * NUM(moves); i++) {
            const char *note = notes[i % NUM(notes)];
            const kv_move *move = &moves[i % NUM(moves)];
            kvmem_submit_options step = OPTIONS(kvmem_submit_options, it.pairs = move->pairs,
                                                it.num_pairs = move->num_pairs, it.notification = note,
                                                it.notification_size = note == NULL ? 0 : strlen(note));
            const kvmem_submit_options bad = WITH(step, it.pairs = twice, it.num_pairs = NUM(twice),
                                                  it.notification = "refused", it.notification_size = 7);
            EXPECT_OK(kvmem_transfer_submit(transfer, &step, ERR));
            for (int run = 0; run < 2; run++) {
                EXPECT_OK(kvmem_transfer_wait(transfer, PATIENCE, ERR));
                if (note != NULL) kv_peer_expect_notification(&met.peer, "near", note, strlen(note));
                if (run == 0) {
                    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_transfer_submit(transfer, &bad, ERR));
                    EXPECT_OK(kvmem_transfer_poll(transfer, ERR));
                    EXPECT_OK(kvmem_transfer_submit(transfer, NULL, ERR));
                }
            }
            kv_expect_moved(&met.peer.model, &met.side, move);
            kv_peer_check(&met.peer);
            GET(kvmem_transfer_info, info, kvmem_transfer_get_info, transfer);
            check_info(&info, move, KVMEM_METHOD_NIXL);
        }
    }
}

static void check_verified(const kvmem_layout *source, const kvmem_layout *destination,
                           const uint32_t *checksums, uint64_t flags, kvmem_status status) {
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination,
        KV_JOB(&all_layers, it.run.checksums = checksums, it.run.flags = flags));
    RUN_ENDS(status, "", transfer);
}

/* With checksums of the caller, and with blocks that are read from the peer once more. */
TEST(blocks_read_from_and_written_to_a_peer_are_verified) {
    const kvmem_layout_config config = kv_config(&kv_kinds[1]);
    OPENED(kv_meeting, met, "near", "far", &config, &config);
    uint32_t checksums[8];
    CHECK(all_layers.num_pairs <= NUM(checksums));
    for (size_t i = 0; i < all_layers.num_pairs; i++)
        checksums[i] = crc_of_block(&met.peer.model, all_layers.pairs[i].source, 0, 3);
    for (int i = 0; i < 2; i++) {
        checksums[0] += (uint32_t)i;
        check_verified(met.peer.model.layout, met.side.layout, checksums, 0,
                       i == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_CORRUPT);
    }
    check_verified(met.peer.model.layout, met.side.layout, NULL, KVMEM_SUBMIT_VERIFY, KVMEM_STATUS_OK);
    check_verified(met.side.layout, met.peer.model.layout, checksums, 0, KVMEM_STATUS_CORRUPT);
    check_verified(met.side.layout, met.peer.model.layout, NULL, KVMEM_SUBMIT_VERIFY, KVMEM_STATUS_OK);
    const uint32_t block = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "its owner",
                   kvmem_layout_checksum(met.peer.model.layout, &block, 1, KVMEM_TIMEOUT_FOREVER, checksums, ERR));
    kv_side_check_moved(&met.side, &met.peer.model, &all_layers);
    kv_expect_moved(&met.peer.model, &met.side, &all_layers);
    kv_peer_check(&met.peer);
}

/* Two hundred blocks of many pieces, so that a request needs more than one message. */
TEST(large_transfers_are_correct) {
    kvmem_layout_config here = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 200, it.num_layers = 8,
                                    it.page_size = 16, it.inner_dim = 256);
    const kvmem_layout_config there =
        WITH(here, it.order = KVMEM_ORDER_LAYER_SEPARATE_OUTER_FIRST);
    kvmem_block_pair pairs[100];
    for (uint32_t i = 0; i < NUM(pairs); i++) pairs[i] = (kvmem_block_pair){2 * i, 199 - i};
    const kv_move move = {pairs, NUM(pairs), 0, 0, 8};
    OPENED(kv_meeting, met, "near", "far", &here, &there);
    kv_run(met.side.layout, met.peer.model.layout, &move);
    kv_expect_moved(&met.peer.model, &met.side, &move);
    kv_peer_check(&met.peer);
    kv_run(met.peer.model.layout, met.side.layout, &move);
    kv_side_check_moved(&met.side, &met.peer.model, &move);
}

static void refuse(const kvmem_layout *source, const kvmem_layout *destination, kvmem_status status,
                   const char *part) {
    const kv_job options = kv_job_of(&all_layers);
    REFUSE(status, part, kv_prepare, source, destination, &options);
}

TEST(transfers_that_a_peer_cannot_do_fail) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_agent) agent = agent_open("near");
    OWNED(kvmem_agent) other = agent_open("other");
    OPENED(kv_peer, peer, "far", &config, 1);
    kv_peer_meet(&peer, agent);
    OPENED(kv_side, unregistered, &config, NULL, 2);
    refuse(unregistered.layout, peer.model.layout, KVMEM_STATUS_INVALID_STATE,
           "build it with agent 'near', which has imported the layout of agent 'far'");
    OPENED(kv_side, elsewhere, &config, other, 3);
    refuse(elsewhere.layout, peer.model.layout, KVMEM_STATUS_INVALID_ARGUMENT, "other");
    CHECK_HAS(test_last_message(), "near");
    refuse(peer.model.layout, peer.model.layout, KVMEM_STATUS_UNSUPPORTED, "remote");
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, NULL, KVMEM_DISK_BUFFERED);
    refuse(file, peer.model.layout, KVMEM_STATUS_UNSUPPORTED, "between a peer and a layout on tier disk");
    refuse(peer.model.layout, file, KVMEM_STATUS_UNSUPPORTED, "between a peer and a layout on tier disk");
    OPENED(kv_side, different, REF(WITH(config, it.inner_dim = 7)), agent, 4);
    refuse(different.layout, peer.model.layout, KVMEM_STATUS_INVALID_ARGUMENT, "inner_dim");
    kv_peer_check(&peer);
}

/* kvmem does not know how UCX transfers the bytes, so it guarantees nothing. */
TEST(no_guarantee_is_given_for_transfers_to_a_peer) {
    static const uint64_t flags[] = {KVMEM_TRANSFER_ZERO_COPY, KVMEM_TRANSFER_NO_HOST_BOUNCE,
                                     KVMEM_TRANSFER_ZERO_COPY | KVMEM_TRANSFER_NO_HOST_BOUNCE};
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OPENED(kv_meeting, met, "near", "far", &config, &config);
    for (size_t i = 0; i < 2 * NUM(flags); i++) {
        const kvmem_layout *source = i % 2 == 0 ? met.side.layout : met.peer.model.layout;
        const kvmem_layout *destination = i % 2 == 0 ? met.peer.model.layout : met.side.layout;
        REFUSE(KVMEM_STATUS_UNSUPPORTED, "can't be guaranteed", kv_prepare, source, destination,
               KV_JOB(&all_layers, it.transfer.flags = flags[i / 2]));
    }
    read_from_peer(&met.side, &met.peer, &all_layers);
}
