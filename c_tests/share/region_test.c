// SPDX-License-Identifier: Apache-2.0
// Regions of every kind are opened in another process: the same bytes and the same info, as a whole and in
// parts.
#include "kinds.h"
#include "offer.h"
#include "opened.h"

HOLDER_ROLE

static void check_share(const parcel *parcel, memory_kind kind, const peer *holder) {
    OWNED(kvmem_share) share = parcel_share(parcel);
    GET(kvmem_share_info, info, kvmem_share_get_info, share);
    CHECK_EQ(info.size, parcel->bytes.size);
    CHECK_EQ(info.num_fds, parcel->num_fds);
    CHECK_EQ(info.memory_size, MEMORY_SIZE);
    CHECK_EQ(info.pid, holder->pid);
    CHECK_EQ(info.object, KVMEM_SHARED_REGION);
    CHECK_EQ(info.tier, memory_tier(kind));
    CHECK_EQ(info.read_only, 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "of a region", kvmem_share_open_layout, share, NULL);
}

/* The fields that distinguish the kinds are the same in both processes. */
static void check_info(const kvmem_region *region, memory_kind kind, const peer *holder) {
    const kvmem_region_info there = holder_info(holder, HOLDING_OWN);
    const kvmem_region_info here = region_info(region);
    const bool is_plain_pinned = kind == MEMORY_PINNED && here.tier == KVMEM_TIER_SYSTEM;
    const uint64_t same = KVMEM_REGION_DIRECT_IO | KVMEM_REGION_TEMPORARY | KVMEM_REGION_SHAREABLE;
    CHECK_EQ(here.origin, KVMEM_ORIGIN_IMPORTED);
    CHECK_EQ(here.size, MEMORY_SIZE);
    CHECK_EQ(here.tier, is_plain_pinned ? KVMEM_TIER_SYSTEM : memory_tier(kind));
    CHECK_EQ(here.flags & same, there.flags & same);
    CHECK_EQ(here.flags & KVMEM_REGION_READ_ONLY, 0);
    CHECK_EQ(here.memory_page_size, there.memory_page_size);
    CHECK_EQ(here.alignment, there.alignment);
    CHECK_EQ(here.device, is_plain_pinned ? -1 : there.device);
    CHECK_EQ(here.registration_count, 0);
    CHECK((here.fd >= 0) == (there.fd >= 0));
}

TEST_EACH_KIND(each_process_sees_the_others_writes) {
    OPENED(offer, fixture, kind, NULL);
    check_share(&fixture.parcel, kind, &fixture.owner);
    OWNED(kvmem_region) region = open_parcel(&fixture.parcel, 0);
    check_info(region, kind, &fixture.owner);
    memory_check(region, 1);
    memory_fill(region, 2);
    holder_check(&fixture.owner, HOLDING_OWN, 2);
    holder_fill(&fixture.owner, HOLDING_OWN, 3);
    memory_check(region, 3);
    EXPECT_OK(kvmem_region_check_owner(region, ERR));
}

TEST(views_are_shared_as_parts) {
    static const uint64_t offsets[] = {0, MEMORY_EXTENT, 4096};
    for EACH_KIND(kind) {
        OPENED(offer, fixture, kind, NULL);
        uint64_t start = 0;
        kvmem_region *parts[NUM(offsets)];
        for (size_t i = 0; i < NUM(offsets); i++) {
            CLEANUP(parcel_close) parcel parcel = holder_share_part(&fixture.owner, offsets[i],
                                                                    2 * MEMORY_EXTENT);
            parts[i] = open_parcel(&parcel, 0);
            const kvmem_region_info info = region_info(parts[i]);
            CHECK_EQ(info.size, 2 * MEMORY_EXTENT);
            CHECK_EQ(info.origin, KVMEM_ORIGIN_VIEW);
            start = i == 0 ? info.address : start;
            CHECK_EQ(info.address, start + offsets[i]); /* of one mapping */
            memory_check_part(parts[i], offsets[i], 1);
        }
        CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 1);
        memory_fill(parts[0], 2);
        memory_check_part(parts[0], 0, 2);
        for (size_t i = 0; i < NUM(offsets); i++) CALL(kvmem_region_destroy(parts[i]));
    }
}

TEST_EACH_KIND(a_region_opened_twice_is_mapped_once) {
    OPENED(offer, fixture, kind, NULL);
    CLEANUP(parcel_close) parcel second = holder_share(&fixture.owner, NULL);
    const size_t before = count_file_mappings();
    kvmem_region *one = open_parcel(&fixture.parcel, 0);
    const size_t once = count_file_mappings();
    kvmem_region *again = open_parcel(&fixture.parcel, 0);
    kvmem_region *other = open_parcel(&second, 0);
    CHECK(before < once);
    CHECK_EQ(count_file_mappings(), once);
    CHECK_EQ(region_info(again).address, region_info(one).address);
    CHECK_EQ(region_info(other).address, region_info(one).address);
    CHECK_EQ(region_info(other).fd, region_info(one).fd);
    CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 1);
    CALL(kvmem_region_destroy(one));
    CALL(kvmem_region_destroy(again));
    memory_check(other, 1);
    CALL(kvmem_region_destroy(other));
    CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 0);
}

/* One mapping per access right, however often it is opened. */
TEST_EACH_KIND(each_right_has_one_mapping) {
    OPENED(offer, fixture, kind, NULL);
    kvmem_region *both[2][2];
    for (size_t i = 0; i < 2; i++) {
        both[i][0] = open_parcel(&fixture.parcel, KVMEM_OPEN_READ_ONLY);
        both[i][1] = open_parcel(&fixture.parcel, 0);
    }
    for (size_t right = 0; right < 2; right++) {
        CHECK_EQ(region_info(both[0][right]).address, region_info(both[1][right]).address);
        CHECK_EQ(region_info(both[0][right]).flags & KVMEM_REGION_READ_ONLY,
                 right ? 0 : KVMEM_REGION_READ_ONLY);
    }
    CHECK_EQ(holder_holders(&fixture.owner, HOLDING_OWN).importers, 2);
    for (size_t i = 0; i < 4; i++) {
        memory_check(both[i / 2][i % 2], 1);
        CALL(kvmem_region_destroy(both[i / 2][i % 2]));
    }
}

static kvmem_share *share_region(const kvmem_region *region, memory_kind kind) {
    const kvmem_share_options options = {.struct_size = sizeof(options), .transport = memory_transport(kind)};
    return MADE(kvmem_share, kvmem_share_create_region, region, &options);
}

TEST_EACH_KIND(opening_a_share_in_the_process_of_its_owner_gives_the_original) {
    SCRATCH(directory);
    kvmem_region *region = memory_create(kind, MEMORY_SIZE, scratch_file(&directory, "region"));
    kvmem_share *share = share_region(region, kind);
    CLEANUP(parcel_close) parcel parcel = parcel_of(share);
    kvmem_region *opened = open_parcel(&parcel, 0);
    CHECK_EQ(region_info(opened).address, region_info(region).address);
    CHECK(region_info(opened).origin != KVMEM_ORIGIN_IMPORTED);
    CALL(kvmem_region_destroy(region));
    CALL(kvmem_region_destroy(opened));
    opened = open_parcel(&parcel, 0); /* the share keeps it */
    CALL(kvmem_region_destroy(opened));
    CALL(kvmem_share_destroy(share));
    refuse_parcel(&parcel, 0, KVMEM_STATUS_NOT_FOUND, "has freed it");
}

TEST_EACH_KIND(only_the_owner_can_share_a_region) {
    OPENED(offer, fixture, kind, NULL);
    OWNED(kvmem_region) region = open_parcel(&fixture.parcel, 0);
    OWN(kvmem_region, view, kvmem_region_create_view, region, 0, 4096);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "belongs to another process", kvmem_share_create_region, region, NULL);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "", kvmem_share_create_region, view, NULL);
}

TEST_EACH_KIND(each_transport_is_used_or_unsupported) {
    SCRATCH(directory);
    OWNED(kvmem_region) region = memory_create(kind, MEMORY_SIZE, scratch_file(&directory, "region"));
    const bool by_ipc = kind == MEMORY_DEVICE || kind == MEMORY_ADOPTED;
    const bool by_fabric = kind == MEMORY_FABRIC;
    const struct {
        uint32_t transport;
        kvmem_status status;
    } transports[] = {
        {KVMEM_SHARE_AUTO, KVMEM_STATUS_OK},
        {KVMEM_SHARE_FD, by_ipc ? KVMEM_STATUS_UNSUPPORTED : KVMEM_STATUS_OK},
        {KVMEM_SHARE_IPC, by_ipc ? KVMEM_STATUS_OK : KVMEM_STATUS_UNSUPPORTED},
        {KVMEM_SHARE_REMOTE, KVMEM_STATUS_INVALID_ARGUMENT},
        {KVMEM_SHARE_FABRIC, by_fabric ? KVMEM_STATUS_OK : KVMEM_STATUS_UNSUPPORTED},
        {KVMEM_SHARE_FABRIC + 1, KVMEM_STATUS_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < NUM(transports); i++) {
        kvmem_share_options options = OPTIONS(kvmem_share_options, it.transport = transports[i].transport);
        OWNED(kvmem_share) share = NULL;
        EXPECT(transports[i].status, kvmem_share_create_region(region, &options, &share, ERR));
    }
}

/* Memory in a memory file could not be shared in this way either. */
TEST(memory_that_is_not_shareable_has_no_ipc_handle) {
    OWNED(kvmem_region) region = region_create_system(4096, 0);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "host memory cannot be shared by the driver's IPC handle", kvmem_share_create_region,
           region, REF(OPTIONS(kvmem_share_options, it.transport = KVMEM_SHARE_IPC)));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "KVMEM_SYSTEM_SHAREABLE", kvmem_share_create_region, region, NULL);
}
