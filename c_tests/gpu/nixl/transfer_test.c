// SPDX-License-Identifier: Apache-2.0
// Transfers by NIXL between two processes with GPU and pinned memory, compared byte by byte. Needs a GPU.
#include "side_peer.h"
#include "caller_context.h"

REQUIRES(lacks_real_gpu)

SIDE_PEER_ROLE

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}, {2, 1}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};
static const kv_move one_layer = {scattered, NUM(scattered), 2, 0, 1};

static void write_to_peer(side *here, kv_peer *peer, const kv_move *move) {
    const kvmem_transfer_info info = kv_run(here->model.layout, peer->model.layout, move);
    CHECK_EQ(info.method, KVMEM_METHOD_NIXL);
    kv_expect_moved(&peer->model, &here->model, move);
    kv_peer_check(peer);
    side_check(here);
}

static void read_from_peer(side *here, kv_peer *peer, const kv_move *move) {
    const kvmem_transfer_info info = kv_run(peer->model.layout, here->model.layout, move);
    CHECK_EQ(info.method, KVMEM_METHOD_NIXL);
    kv_expect_moved(&here->model, &peer->model, move);
    side_check(here);
    kv_peer_check(peer);
}

/* Exchanges blocks between a peer with memory at `there` and every local place and kind of layout. */
static void exchange_with(place there) {
    static const place places[] = {PLACE_SYSTEM, PLACE_PINNED, PLACE_DEVICE, PLACE_ADOPTED};
    OWNED(kvmem_agent) agent = agent_open("near");
    const kvmem_layout_config remote = side_config(&kv_kinds[1]);
    CLEANUP(kv_peer_close) kv_peer peer;
    side_peer_start(&peer, "far", there, 0, &remote, 100);
    kv_peer_meet(&peer, agent);
    for (size_t i = 0; i < NUM(places) * KV_NUM_KINDS; i++) {
        const kvmem_layout_config local = side_config(&kv_kinds[i % KV_NUM_KINDS]);
        OPENED(side, here, places[i / KV_NUM_KINDS], 0, &local, agent, (uint32_t)i);
        write_to_peer(&here, &peer, &all_layers);
        read_from_peer(&here, &peer, &one_layer);
        read_from_peer(&here, &peer, &all_layers);
        write_to_peer(&here, &peer, &one_layer);
    }
}

TEST_CALL(with_device_memory_there, exchange_with(PLACE_DEVICE))
TEST_CALL(with_pinned_memory_there, exchange_with(PLACE_PINNED))
TEST_CALL(with_adopted_memory_there, exchange_with(PLACE_ADOPTED))

TEST(regions_are_registered_with_their_memory_type) {
    static const struct {
        place place;
        uint32_t memory_type;
    } kinds[] = {{PLACE_PINNED, KVMEM_MEMORY_DRAM}, {PLACE_DEVICE, KVMEM_MEMORY_VRAM}};
    OWNED(kvmem_agent) agent = agent_open("near");
    const kvmem_layout_config config = side_config(&kv_kinds[0]);
    for (int device = 0; device < driver_devices(); device++) {
        for (size_t i = 0; i < NUM(kinds); i++) {
            OPENED(side, side, kinds[i].place, device, &config, NULL, 1);
            OWN(kvmem_registration, registration, kvmem_region_register, side.whole, agent);
            GET(kvmem_registration_info, info, kvmem_registration_get_info, registration);
            CHECK_EQ(info.address, side.base);
            CHECK_EQ(info.size, side.model.size);
            CHECK_EQ(info.memory_type, kinds[i].memory_type);
            CHECK_EQ(info.device_id, kinds[i].memory_type == KVMEM_MEMORY_VRAM ? device : 0);
            CHECK_EQ(region_info(side.whole).registration_count, 1);
            EXPECT_OK(kvmem_registration_deregister(registration, ERR));
            CHECK_EQ(region_info(side.whole).registration_count, 0);
        }
    }
}

/* KVMEM_LAYOUT_REGISTRATIONS as the source of a layout. */
TEST(layouts_on_registrations) {
    static const place places[] = {PLACE_PINNED, PLACE_DEVICE, PLACE_ADOPTED};
    OWNED(kvmem_agent) agent = agent_open("near");
    const kvmem_layout_config config = side_config(&kv_kinds[1]);
    for (size_t i = 0; i < NUM(places); i++) {
        OPENED(side, side, places[i], 0, &config, NULL, 1);
        kvmem_registration *registrations[3] = {NULL};
        for (size_t k = 0; k < NUM(registrations); k++)
            EXPECT_OK(kvmem_region_register(side.model.regions[k], agent, &registrations[k], ERR));
        GET(kvmem_layout *, layout, kvmem_layout_build,
            REF(OPTIONS(kvmem_layout_options, it.config = &config, it.source = KVMEM_LAYOUT_REGISTRATIONS,
                        it.registrations = registrations, it.count = NUM(registrations))));
        GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
        CHECK_EQ(info.locality, KVMEM_LOCALITY_REGISTERED);
        EXPECT(KVMEM_STATUS_BUSY, kvmem_registration_deregister(registrations[0], ERR));
        CALL(kvmem_layout_destroy(layout));
        for (size_t k = 0; k < NUM(registrations); k++) {
            EXPECT_OK(kvmem_registration_deregister(registrations[k], ERR));
            CALL(kvmem_registration_destroy(registrations[k]));
        }
    }
}

/* UCX handles only the first of several mappings. The bytes of the others must arrive, too, or registering
   must fail. */
TEST(memory_of_several_mappings_is_moved_completely_or_rejected) {
    OWNED(kvmem_agent) agent = agent_open("near");
    span span;
    span_open(&span, 0, 2, 2);
    kvmem_adopt_options options = OPTIONS(kvmem_adopt_options, it.address = (void *)(uintptr_t)span.address,
                                          it.size = 2 * span.granule);
    GET(kvmem_region *, region, kvmem_region_adopt_device, &options, 0);
    kvmem_registration *registration = NULL;
    const kvmem_status status = kvmem_region_register(region, agent, &registration, NULL);
    CHECK(status == KVMEM_STATUS_OK || status == KVMEM_STATUS_UNSUPPORTED);
    CALL(kvmem_registration_destroy(registration));
    CALL(kvmem_region_destroy(region));
    span_close(&span);
    if (status == KVMEM_STATUS_OK) {
        const kvmem_layout_config config = side_config(&kv_kinds[0]);
        CLEANUP(kv_peer_close) kv_peer peer;
        side_peer_start(&peer, "far", PLACE_SPANNED, 0, &config, 1);
        kv_peer_meet(&peer, agent);
        OPENED(side, here, PLACE_SPANNED, 0, &config, agent, 2);
        read_from_peer(&here, &peer, &all_layers);
        write_to_peer(&here, &peer, &one_layer);
    }
}
