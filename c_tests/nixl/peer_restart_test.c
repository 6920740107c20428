// SPDX-License-Identifier: Apache-2.0
// A peer that restarts under the name of one that died: it is distinguished, and fails until the old one is
// invalidated.
#include "harness.h"

#include <sys/personality.h>

KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

static kvmem_transfer *create(const kvmem_layout *source, const kvmem_layout *destination) {
    const kvmem_transfer_options options = kv_transfer_options(&move);
    return MADE(kvmem_transfer, kvmem_transfer_create, source, destination, &options);
}

/* Creating, submitting or running fails as stale, and nothing new can be created from the layout. */
static void expect_stale(const kvmem_layout *local, const kvmem_layout *old, kvmem_transfer *old_transfer) {
    const kvmem_status status = submit_and_wait(old_transfer, PATIENCE);
    CHECK_EQ(status, KVMEM_STATUS_STALE);
    CHECK_HAS(kvmem_error_message(test_last_error(), NULL), "phoenix");
    const kvmem_transfer_options options = kv_transfer_options(&move);
    REFUSE(KVMEM_STATUS_STALE, "phoenix", kvmem_transfer_create, local, old, &options);
}

TEST(a_restarted_peer_is_distinguished) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    OWNED(kvmem_agent) agent = agent_open("near");
    OPENED(kv_side, side, &config, agent, 1);
    OPENED(kv_peer, old, "phoenix", &config, 2);
    kv_peer_meet(&old, agent);
    OWNED(kvmem_transfer) old_transfer = create(side.layout, old.model.layout);
    RUN(old_transfer);
    kv_peer_crash(&old);

    OPENED(kv_peer, restarted, "phoenix", &config, 3);
    const message *new_metadata = &restarted.metadata;
    EXPECT_MESSAGE(KVMEM_STATUS_ALREADY_EXISTS, "phoenix",
                   kvmem_agent_load_remote_metadata(agent, new_metadata->data, new_metadata->size, NULL, ERR));
    CHECK_HAS(test_last_message(), "invalidate");
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(agent, "phoenix", ERR));
    expect_stale(side.layout, old.model.layout, old_transfer);
    kv_peer_meet(&restarted, agent);
    expect_stale(side.layout, old.model.layout, old_transfer); /* still the layout of the old peer */

    kv_run(side.layout, restarted.model.layout, &move);
    kv_expect_moved(&restarted.model, &side, &move);
    kv_peer_check(&restarted);
}

/* Without address randomization both lives of the peer have the same addresses. Only the identity in the
   descriptor distinguishes them. */
TEST(an_old_descriptor_fails_though_its_addresses_match) {
    const kvmem_layout_config first = kv_config(&kv_kinds[1]);
    const kvmem_layout_config second = kv_config(&kv_kinds[2]);
    OWNED(kvmem_agent) agent = agent_open("near");
    const int randomised = personality(ADDR_NO_RANDOMIZE);
    CHECK(randomised >= 0);
    OPENED(kv_peer, old, "phoenix", &first, 2);
    kv_peer_crash(&old);
    OPENED(kv_peer, restarted, "phoenix", &second, 3);
    CHECK(personality((unsigned long)randomised) >= 0);
    kv_peer_meet(&restarted, agent);
    const message *descriptor = &old.descriptor;
    REFUSE(KVMEM_STATUS_PEER_LOST, "phoenix", kvmem_layout_import, agent, descriptor->data, descriptor->size);
}
