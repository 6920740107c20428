// SPDX-License-Identifier: Apache-2.0
// Layouts of every kind are opened in another process: the same blocks are mapped, and transfers read and
// write them.
#include "exchange.h"
#include "kept_context.h"
#include "kinds.h"
#include "opened.h"

#ifdef KVMEM_TEST_SHARE_GPU
static const memory_kind places[] = {MEMORY_PINNED, MEMORY_DEVICE, MEMORY_ELASTIC};
#else
static const memory_kind places[] = {MEMORY_SYSTEM};
#endif

KEEPING_HOLDER_ROLE

typedef exchange fixture;

/* The owner has no region or layout yet. */
static void open_fixture(fixture *fixture, peer owner, const exchange_options *setup) {
    keep_context();
    exchange_open(fixture, owner, setup);
    fixture->mapped = open_layout(&fixture->parcel, 0, NULL);
}

static void fixture_open(fixture *fixture, memory_kind place, size_t kind, blocks_placement placement,
                         const kvmem_share_options *options) {
    const exchange_options setup = {.there = place, .layout_kind = kind, .placement = placement,
                                    .options = options};
    open_fixture(fixture, holder_start(), &setup);
}

static void fixture_close(fixture *fixture) {
    exchange_close(fixture);
    peer_finish(&fixture->owner);
}

static void check_layout_info(const kvmem_layout *layout, const kvmem_layout_config *config,
                              memory_kind place) {
    /* Page-locked on demand. */
    const uint32_t tier = place == MEMORY_PINNED ? KVMEM_TIER_SYSTEM : memory_tier(place);
    GET(kvmem_layout_info, info, kvmem_layout_get_info, layout);
    CHECK_EQ(info.locality, KVMEM_LOCALITY_MAPPED);
    CHECK_EQ(info.tier, tier);
    CHECK_EQ(info.num_blocks, config->num_blocks);
    CHECK_EQ(info.num_layers, config->num_layers);
    CHECK_EQ(info.outer_dim, config->outer_dim);
    CHECK_EQ(info.page_size, config->page_size);
    CHECK_EQ(info.inner_dim, config->inner_dim);
    CHECK_EQ(info.dtype_width, config->dtype_width);
    CHECK_STR(info.order, config->order);
    CHECK_EQ(info.num_regions, kv_num_regions(config));
}

static const kvmem_block_pair scattered[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}};
static const kv_move all_layers = {scattered, NUM(scattered), 0, 0, 3};
static const kv_move one_layer = {scattered, NUM(scattered), 2, 1, 1};

static void move_in_both_directions(const peer *owner, memory_kind place, size_t kind,
                                    blocks_placement placement) {
    CLEANUP(exchange_close) fixture fixture;
    open_fixture(&fixture, *owner, &(exchange_options){.there = place, .layout_kind = kind,
                                                       .placement = placement});
    check_layout_info(fixture.mapped, &fixture.config, place);
    exchange_check(&fixture);
    exchange_pull(&fixture, fixture.mapped, &all_layers, 0);
    exchange_check(&fixture);
    exchange_push(&fixture, fixture.mapped, &one_layer, 0);
    exchange_check(&fixture);
    holder_end_shares(owner);
    holder_destroy(owner);
}

TEST(blocks_move_in_both_directions) {
    CLEANUP(peer_finish) peer owner = holder_start();
    for (size_t place = 0; place < NUM(places); place++) {
        for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
            move_in_both_directions(&owner, places[place], kind, BLOCKS_TOGETHER);
            if (places[place] != MEMORY_ELASTIC) { /* kvmem allocates such layouts as a whole */
                move_in_both_directions(&owner, places[place], kind, BLOCKS_APART);
            }
        }
    }
}

static void expect_no_transfer(const kvmem_layout *source, const kvmem_layout *destination,
                               kvmem_status status) {
    REFUSE(status, "", kv_prepare, source, destination, KV_JOB(&all_layers));
}

TEST(a_read_only_share_is_no_destination) {
    const kvmem_share_options to_be_read = {.struct_size = sizeof(to_be_read),
                                            .flags = KVMEM_SHARE_READ_ONLY};
    for (size_t place = 0; place < NUM(places); place++) {
        OPENED(fixture, fixture, places[place], 1, BLOCKS_TOGETHER, &to_be_read);
        exchange_pull(&fixture, fixture.mapped, &all_layers, 0);
        expect_no_transfer(fixture.own, fixture.mapped, KVMEM_STATUS_PERMISSION_DENIED);
        expect_no_transfer(fixture.mapped, fixture.mapped, KVMEM_STATUS_PERMISSION_DENIED);
        static const uint64_t flags[] = {0, KVMEM_OPEN_MAPPED_ONLY, KVMEM_OPEN_REMOTE};
        for (size_t i = 0; i < NUM(flags); i++)
            refuse_layout(&fixture.parcel, KVMEM_OPEN_READ_WRITE | flags[i], NULL,
                          KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_SHARE_READ_ONLY");
        exchange_check(&fixture);
    }
}

TEST(a_share_opened_read_only_is_no_destination) {
    for (size_t place = 0; place < NUM(places); place++) {
        OPENED(fixture, fixture, places[place], 2, BLOCKS_TOGETHER, NULL);
        OWNED(kvmem_layout) reader = open_layout(&fixture.parcel, KVMEM_OPEN_READ_ONLY, NULL);
        exchange_pull(&fixture, reader, &all_layers, 0);
        expect_no_transfer(fixture.own, reader, KVMEM_STATUS_PERMISSION_DENIED);
        exchange_check(&fixture);
    }
}

TEST(blocks_can_be_read_after_the_owner_ended) {
    for (size_t place = 0; place < NUM(places); place++) {
        OPENED(fixture, fixture, places[place], 0, BLOCKS_TOGETHER, NULL);
        peer_kill(&fixture.owner);
        exchange_pull(&fixture, fixture.mapped, &all_layers, 0);
        OWN(kvmem_region, region, kvmem_layout_get_region, fixture.mapped, 0);
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(region, ERR));
    }
}

/* Ordinary mappings are not aligned to this. Both processes must choose addresses for it. */
TEST(blocks_are_aligned_in_both_processes) {
    for (size_t place = 0; place < NUM(places); place++) {
        if (memory_tier(places[place]) == KVMEM_TIER_DEVICE) {
            continue; /* the driver chooses the addresses */
        }
        const uint64_t alignments[] = {MIB, 4 * MEMORY_EXTENT};
        for (size_t i = 0; i < NUM(alignments); i++) {
            kvmem_layout_config config = WITH(blocks_config(&kv_kinds[1]), it.alignment = alignments[i]);
            OWNED(kvmem_layout) layout = blocks_build(places[place], &config, BLOCKS_TOGETHER, NULL);
            OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
            CLEANUP(parcel_close) parcel parcel = parcel_of(share);
            CLEANUP(peer_finish) peer importer = holder_start();
            CHECK_EQ(holder_open_layout(&importer, &parcel), KVMEM_STATUS_OK);
        }
    }
}

TEST(opening_a_share_in_the_process_of_its_owner_gives_the_original) {
    for (size_t place = 0; place < NUM(places); place++) {
        for (size_t kind = 0; kind < KV_NUM_KINDS; kind++) {
            const kvmem_layout_config config = blocks_config(&kv_kinds[kind]);
            OWNED(kvmem_layout) layout = blocks_build(places[place], &config, BLOCKS_TOGETHER, NULL);
            OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
            CLEANUP(parcel_close) parcel parcel = parcel_of(share);
            OWNED(kvmem_layout) again = open_layout(&parcel, 0, NULL);
            const kvmem_layout_info first = layout_info(layout);
            const kvmem_layout_info second = layout_info(again);
            CHECK_EQ(second.num_regions, first.num_regions);
            CHECK_BYTES(second.bases, first.bases, first.num_regions * sizeof(*first.bases));
            CHECK_EQ(second.block_stride, first.block_stride);
            CHECK_EQ(layout_info(again).locality, KVMEM_LOCALITY_LOCAL);
        }
    }
}

TEST(a_share_of_a_layout_cannot_be_opened_as_a_region) {
    OPENED(fixture, fixture, places[0], 0, BLOCKS_TOGETHER, NULL);
    kvmem_share *share = parcel_share(&fixture.parcel);
    kvmem_region *region = NULL;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "of a layout",
                   kvmem_share_open_region(share, NULL, &region, ERR));
    CHECK_EQ(share_info(share).object, KVMEM_SHARED_LAYOUT);
    CHECK(share_info(share).memory_size >= kv_num_regions(&fixture.config) * kv_region_size(&fixture.config));
    CALL(kvmem_share_destroy(share));
    share = (kvmem_share *)&region;
    EXPECT(KVMEM_STATUS_UNSUPPORTED, kvmem_share_create_layout(fixture.mapped, NULL, &share, ERR));
    CHECK(share == NULL);
}

#ifdef KVMEM_TEST_SHARE_GPU
static void page_lock_on_demand(memory_kind kind, blocks_placement placement) {
    OPENED(fixture, fixture, kind, 1, placement, NULL);
    OWNED(kvmem_layout) locked = open_layout(&fixture.parcel, KVMEM_OPEN_PIN, NULL);
    CHECK_EQ(layout_info(locked).tier, KVMEM_TIER_PINNED);
    OWNED(kvmem_layout) device = blocks_build(MEMORY_DEVICE, &fixture.config, BLOCKS_TOGETHER, NULL);
    CLEANUP(kv_side_close) kv_side moved;
    kv_model_open(&moved, &fixture.config, 5);
    blocks_write(device, &moved);
    kv_run(locked, device, &all_layers);
    kv_expect_moved(&moved, &fixture.there, &all_layers);
    blocks_check(device, &moved);
}

TEST(host_memory_is_page_locked_on_demand) {
    page_lock_on_demand(MEMORY_PINNED, BLOCKS_TOGETHER);
    page_lock_on_demand(MEMORY_PART, BLOCKS_APART);
}

/* A part of a memory file that the engine has page-locked. Kernels access it. */
TEST(memory_page_locked_by_the_engine_is_used_by_kernels) {
    keep_context();
    const kvmem_layout_config config = blocks_config(&kv_kinds[0]);
    OWNED(kvmem_region) region = memory_create(MEMORY_PART, kv_region_size(&config), NULL);
    const kvmem_region_info info = region_info(region);
    enter_device(0);
    CU(cuMemHostRegister_v2((void *)(uintptr_t)info.address, info.size, 0));
    leave_device(0);
    kvmem_layout *locked = regions_lay_out(&config, &region, 1, NULL);
    kvmem_layout *device = blocks_build(MEMORY_DEVICE, &config, BLOCKS_TOGETHER, NULL);
    CLEANUP(kv_side_close) kv_side from;
    CLEANUP(kv_side_close) kv_side to;
    kv_model_open(&from, &config, 3);
    kv_model_open(&to, &config, 4);
    blocks_write(locked, &from);
    blocks_write(device, &to);
    kv_run_by(locked, device, &all_layers, KVMEM_METHOD_CUDA_KERNEL);
    kv_expect_moved(&to, &from, &all_layers);
    blocks_check(device, &to);
    CALL(kvmem_layout_destroy(device));
    CALL(kvmem_layout_destroy(locked));
    enter_device(0);
    CU(cuMemHostUnregister((void *)(uintptr_t)info.address));
    leave_device(0);
}
#endif
