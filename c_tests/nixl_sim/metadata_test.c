// SPDX-License-Identifier: Apache-2.0
// Metadata of peers with the stand-in for NIXL: in a form that kvmem does not read, and of peers that no
// backend reaches.
#include "stand_in.h"

/* Publishes an agent, whose entry has metadata under another name, and loads the entry. */
static kvmem_status load_disguised(kvmem_agent *near, kvmem_agent *far, const char *disguise) {
    SCRATCH(files);
    OWN(kvmem_directory, directory, kvmem_directory_create,
        REF(OPTIONS(kvmem_directory_options, it.folder = scratch_file(&files, "agents"))));
    NIXL(nixl_sim_disguise(disguise));
    EXPECT_OK(kvmem_directory_publish(directory, far, NULL, 0, PATIENCE, ERR));
    OWN(kvmem_directory_entry, entry, kvmem_directory_look_up, directory, kvmem_agent_name(far), PATIENCE);
    return kvmem_directory_entry_load(entry, near, ERR);
}

TEST(an_entry_with_the_metadata_of_another_agent_loads_nothing) {
    nixl_find_stand_in();
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    OWNED(kvmem_agent) other = agent_open("other");
    EXPECT(KVMEM_STATUS_CORRUPT, load_disguised(near, far, "other"));
    CHECK_HAS(test_last_message(), "'far' is that of another agent, 'other'");
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(near, "other", ERR));
    EXPECT(KVMEM_STATUS_NOT_FOUND, kvmem_agent_check_remote_metadata(near, "far", ERR));
    /* One that was loaded before stays loaded. */
    agents_introduce(near, other);
    EXPECT(KVMEM_STATUS_CORRUPT, load_disguised(near, far, "other"));
    EXPECT_OK(kvmem_agent_check_remote_metadata(near, "other", ERR));
    EXPECT_OK(load_disguised(near, far, "far"));
    EXPECT_OK(kvmem_agent_check_remote_metadata(near, "far", ERR));
}

TEST(a_name_that_is_not_utf8_is_not_loaded) {
    nixl_find_stand_in();
    OWNED(kvmem_agent) near = agent_open("near");
    OWNED(kvmem_agent) far = agent_open("far");
    NIXL(nixl_sim_disguise("\xFF"));
    CLEANUP(message_free) message metadata = agent_metadata(far);
    for (int i = 0; i < 100; i++) /* the stand-in has space for fewer peers */
        EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "UTF-8",
                       kvmem_agent_load_remote_metadata(near, metadata.data, metadata.size, NULL, ERR));
    agents_introduce(near, far);
}

TEST(a_name_of_which_nothing_is_loaded_is_said_to_be_unknown) {
    nixl_find_stand_in();
    OWNED(kvmem_agent) near = agent_open("near");
    static const char unknown[] = "agent 'near' has no metadata of an agent 'far'";
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, unknown, kvmem_agent_invalidate_remote_metadata(near, "far", NULL, ERR));
    CHECK(strstr(test_last_message(), "load it first") == NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, unknown, kvmem_agent_check_remote_metadata(near, "far", ERR));
    CHECK(strstr(test_last_message(), "load it first") == NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_NOT_FOUND, unknown, kvmem_agent_connect(near, "far", NULL, KVMEM_TIMEOUT_FOREVER, ERR));
    CHECK_HAS(test_last_message(), "load it first");
}

/* The stand-in has one plugin that reaches peers, UCX. */
TEST(a_peer_that_no_backend_reaches_is_told_from_damage) {
    nixl_find_stand_in();
    OWNED(kvmem_agent) far = agent_open("far");
    OWN(kvmem_agent, bare, kvmem_agent_create, "bare", NULL);
    CLEANUP(message_free) message metadata = agent_metadata(far);
    char refused[256] = {0}; /* by the stand-in, for the byte at its end */
    CHECK(metadata.size < sizeof(refused));
    memcpy(refused, metadata.data, metadata.size);
    const char *backends[] = {"no backend", "POSIX"};
    for (size_t i = 0; i < NUM(backends); i++) {
        if (i == 1) EXPECT_OK(kvmem_agent_create_backend(bare, "POSIX", NULL, 0, ERR));
        EXPECT_MESSAGE(KVMEM_STATUS_NIXL,
                       TEXT("agent 'far' is reached by UCX, and agent 'bare' has %s; create one of these backends first",
                            backends[i]),
                       kvmem_agent_load_remote_metadata(bare, refused, metadata.size + 1, NULL, ERR));
    }
    OWNED(kvmem_agent) near = agent_open("near");
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "is damaged, or the UCX backend of agent 'near' does not reach it",
                   kvmem_agent_load_remote_metadata(near, refused, metadata.size + 1, NULL, ERR));
    /* the stand-in gives no connection */
    OWN(kvmem_blob, partial, kvmem_agent_get_partial_metadata, far, NULL, 0, NULL);
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "has no connection",
                   kvmem_agent_load_remote_metadata(near, kvmem_blob_data(partial), kvmem_blob_size(partial), NULL, ERR));
}
