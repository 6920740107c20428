// SPDX-License-Identifier: Apache-2.0
// The functions of sharing: NULL in every pointer argument, handles of the wrong type, and invalid values.
#include "contract.h"

static kvmem_region *shareable_region(void) { return region_create_system(4096, KVMEM_SYSTEM_SHAREABLE); }

TEST(creating_shares) {
    OWNED(kvmem_region) region = shareable_region();
    kvmem_share *share = NULL;
    INVALID_NULLS(share, kvmem_share_create_region, NULL, NULL, &share);
    INVALID(kvmem_share_create_region, region, NULL, NULL);
    INVALID_NULLS(share, kvmem_share_create_layout, NULL, NULL, &share);
    INVALID(kvmem_share_create_layout, NULL, NULL, NULL);
}

TEST(reading_shares) {
    OWNED(kvmem_region) region = shareable_region();
    OWN(kvmem_share, share, kvmem_share_create_region, region, NULL);
    kvmem_share_info info;
    INVALID_KEEPS(info, kvmem_share_get_info, NULL, &info);
    INVALID(kvmem_share_get_info, share, NULL);
    kvmem_share_destroy(NULL);
}

TEST(receiving) {
    kvmem_share *share = NULL;
    const int32_t closed = -1;
    const int32_t none = 1 << 20;
    INVALID_NULLS(share, kvmem_share_create_received, NULL, 1, NULL, 0, &share);
    INVALID_NULLS(share, kvmem_share_create_received, "x", 1, NULL, 1, &share);
    INVALID_NULLS(share, kvmem_share_create_received, "x", 1, &closed, 1, &share);
    INVALID_NULLS(share, kvmem_share_create_received, "x", 1, &none, 1, &share);
    INVALID(kvmem_share_create_received, "x", 1, NULL, 0, NULL);
    REFUSED(KVMEM_STATUS_CORRUPT, kvmem_share_create_received, "x", 1, NULL, 0, &share);
}

TEST(opening) {
    OWNED(kvmem_region) region = shareable_region();
    OWN(kvmem_share, share, kvmem_share_create_region, region, NULL);
    kvmem_region *opened = NULL;
    kvmem_layout *layout = NULL;
    INVALID_NULLS(opened, kvmem_share_open_region, NULL, NULL, &opened);
    INVALID(kvmem_share_open_region, share, NULL, NULL);
    const kvmem_open_options registered = OPTIONS(kvmem_open_options, it.flags = KVMEM_OPEN_REGISTER);
    INVALID_NULLS(opened, kvmem_share_open_region, share, &registered, &opened);
    CHECK_HAS(test_last_message(), "kvmem_region_register");
    INVALID_NULLS(layout, kvmem_share_open_layout, NULL, NULL, &layout);
    INVALID(kvmem_share_open_layout, share, NULL, NULL);
    INVALID_NULLS(layout, kvmem_share_open_layout, share, NULL, &layout);
}

TEST(owners_and_holders) {
    OWNED(kvmem_region) region = shareable_region();
    kvmem_region_holders holders;
    INVALID_KEEPS(holders, kvmem_region_get_holders, NULL, &holders);
    INVALID(kvmem_region_get_holders, region, NULL);
    INVALID(kvmem_region_check_owner, NULL);
    EXPECT_OK(kvmem_region_check_owner(region, ERR));
}

TEST(sockets) {
    OWNED(kvmem_region) region = shareable_region();
    kvmem_share *received = NULL;
    OWN(kvmem_share, share, kvmem_share_create_region, region, NULL);
    INVALID(kvmem_share_send, NULL, 0, 0);
    INVALID(kvmem_share_send, share, -1, 0);
    INVALID(kvmem_share_send, share, 1 << 20, 0);
    INVALID_NULLS(received, kvmem_share_receive, -1, 0, &received);
    INVALID_NULLS(received, kvmem_share_receive, 1 << 20, 0, &received);
    INVALID(kvmem_share_receive, 0, 0, NULL);
}

TEST(brokers) {
    kvmem_broker_options options = OPTIONS(kvmem_broker_options);
    kvmem_broker *broker = NULL;
    INVALID_NULLS(broker, kvmem_broker_create, NULL, &broker);
    INVALID_NULLS(broker, kvmem_broker_create, &options, &broker); /* without a path */
    INVALID(kvmem_broker_create, &options, NULL);
    kvmem_token token;
    INVALID_KEEPS(token, kvmem_broker_publish, NULL, "kv", NULL, NULL, &token);
    INVALID_KEEPS(token, kvmem_broker_grant, NULL, "kv", NULL, &token);
    INVALID(kvmem_broker_unpublish, NULL, "kv");
    kvmem_broker_info info;
    INVALID_KEEPS(info, kvmem_broker_get_info, NULL, &info);
    kvmem_broker_destroy(NULL);
}

TEST(fetching) {
    kvmem_fetch_options options = OPTIONS(kvmem_fetch_options);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "missing: path, name, token", kvmem_share_fetch, &options, SECONDS(10));
    kvmem_share *share = NULL;
    const kvmem_token token = {{0}};
    INVALID_NULLS(share, kvmem_share_fetch, NULL, SECONDS(10), &share);
    INVALID_NULLS(share, kvmem_share_fetch, &options, SECONDS(10), &share);
    options.name = "kv";
    INVALID_NULLS(share, kvmem_share_fetch, &options, SECONDS(10), &share);
    options.token = &token;
    INVALID_NULLS(share, kvmem_share_fetch, &options, SECONDS(10), &share);
    INVALID(kvmem_share_fetch, &options, SECONDS(10), NULL);
    options.path = "/nowhere/at/all";
    REFUSED(KVMEM_STATUS_NOT_FOUND, kvmem_share_fetch, &options, SECONDS(10), &share);
}
