// SPDX-License-Identifier: Apache-2.0
// Peers of one name: one that restarts under the name of one that died, and two that live. They are
// distinguished, also if their addresses are equal, and the other fails until the first is invalidated.
#include "harness.h"

#include <fcntl.h>
#include <sys/personality.h>

KV_PEER_ROLE

static const kv_move move = KV_MOVE(3, {6, 0}, {0, 5}, {3, 3});

static kvmem_transfer *create(const kvmem_layout *source, const kvmem_layout *destination) {
    const kv_job options = kv_job_of(&move);
    return MADE(kvmem_transfer, kv_prepare, source, destination, &options);
}

/* Creating, submitting or running fails as stale, and nothing new can be created from the layout. */
static void expect_stale(const kvmem_layout *local, const kvmem_layout *old, kvmem_transfer *old_transfer) {
    const kvmem_status status = submit_and_wait(old_transfer, PATIENCE);
    CHECK_EQ(status, KVMEM_STATUS_STALE);
    CHECK_HAS(kvmem_error_message(test_last_error(), NULL), "phoenix");
    const kv_job options = kv_job_of(&move);
    REFUSE(KVMEM_STATUS_STALE, "phoenix", kv_prepare, local, old, &options);
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
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(agent, "phoenix", NULL, ERR));
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

/* Two living peers of one name, without address randomization, as replicas are that were forked from one
   process. */
typedef struct twins {
    kvmem_agent *agent;
    kv_side side;
    kv_peer first, second;
} twins;

static void twins_open(twins *twins) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    twins->agent = agent_open("near");
    kv_side_open(&twins->side, &config, twins->agent, 1);
    const int randomised = personality(ADDR_NO_RANDOMIZE);
    CHECK(randomised >= 0);
    kv_peer_open(&twins->first, "twin", &config, 2);
    kv_peer_open(&twins->second, "twin", &config, 3);
    CHECK(personality((unsigned long)randomised) >= 0);
}

static void twins_close(twins *twins) {
    kv_peer_close(&twins->first);
    kv_peer_close(&twins->second);
    kv_side_close(&twins->side);
    kvmem_agent_destroy(twins->agent);
}

static uint64_t first_address(const kvmem_layout *layout) {
    GET(kvmem_block, block, kvmem_layout_get_block, layout, 0, 0, 0);
    return block.address;
}

static void expect_import_fails(kvmem_agent *agent, const kv_peer *peer) {
    REFUSE(KVMEM_STATUS_NOT_FOUND, "not of the agent that exported the layout", kvmem_layout_import, agent,
           peer->descriptor.data, peer->descriptor.size);
}

static void expect_bytes_of(twins *twins, kv_peer *peer) {
    kv_run(peer->model.layout, twins->side.layout, &move);
    kv_expect_moved(&twins->side, &peer->model, &move);
}

TEST(a_layout_is_imported_only_with_the_metadata_of_its_own_agent) {
    OPENED(twins, twins);
    kvmem_agent *agent = twins.agent;
    agent_load(agent, &twins.first.metadata);
    expect_import_fails(agent, &twins.second); /* also as the first one */
    kv_peer_meet(&twins.first, agent);
    const uint64_t address = first_address(twins.first.model.layout);
    expect_import_fails(agent, &twins.second);
    expect_bytes_of(&twins, &twins.first);
    EXPECT_OK(kvmem_agent_invalidate_remote_metadata(agent, "twin", NULL, ERR));
    kv_peer_meet(&twins.second, agent);
    CHECK_EQ(first_address(twins.second.model.layout), address); /* nothing else distinguishes them */
    expect_import_fails(agent, &twins.first);
    expect_bytes_of(&twins, &twins.second);
}

/* What is written to stderr, where NIXL and UCX report what they refuse. */
typedef struct written {
    int file, before;
} written;

static written write_to(const char *path) {
    const written written = {open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600), dup(STDERR_FILENO)};
    CHECK(written.file >= 0 && written.before >= 0);
    CHECK(dup2(written.file, STDERR_FILENO) >= 0);
    return written;
}

static void expect_nothing_written(const written *written) {
    CHECK(dup2(written->before, STDERR_FILENO) >= 0);
    close(written->before);
    char text[4096];
    const ssize_t size = pread(written->file, text, sizeof(text) - 1, 0);
    close(written->file);
    CHECK(size >= 0);
    text[size] = 0;
    CHECK_STR(text, "");
}

TEST(another_agent_of_a_loaded_name_is_not_given_to_nixl) {
    OPENED(twins, twins);
    const message *metadata = &twins.second.metadata;
    agent_load(twins.agent, &twins.first.metadata);
    SCRATCH(directory);
    const written written = write_to(scratch_file(&directory, "stderr"));
    const kvmem_status status =
        kvmem_agent_load_remote_metadata(twins.agent, metadata->data, metadata->size, NULL, ERR);
    expect_nothing_written(&written);
    CHECK_EQ(status, KVMEM_STATUS_ALREADY_EXISTS);
    CHECK_HAS(test_last_message(), "agent 'twin' is loaded already");
}

/* NIXL refuses metadata of a peer that it has, and prints that. */
TEST(a_peer_that_is_loaded_again_causes_no_message) {
    OPENED(twins, twins);
    agent_load(twins.agent, &twins.first.metadata);
    SCRATCH(directory);
    const written written = write_to(scratch_file(&directory, "stderr"));
    const message *const metadata[] = {&twins.second.metadata, &twins.first.metadata, &twins.first.metadata};
    kvmem_status status = KVMEM_STATUS_OK;
    for (size_t i = 0; i < NUM(metadata) && status == KVMEM_STATUS_OK; i++) {
        status = kvmem_agent_invalidate_remote_metadata(twins.agent, "twin", NULL, ERR);
        if (status == KVMEM_STATUS_OK)
            status = kvmem_agent_load_remote_metadata(twins.agent, metadata[i]->data, metadata[i]->size, NULL, ERR);
    }
    expect_nothing_written(&written);
    CHECK_EQ(status, KVMEM_STATUS_OK);
}
