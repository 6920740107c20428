// SPDX-License-Identifier: Apache-2.0
// Long lists of raw descriptors for which there is not enough memory: the call fails, and the process goes on.
#include "stand_in.h"

#include <malloc.h>

/* Each large allocation is a mapping of its own, which the limit of addresses prevents. */
__attribute__((constructor)) static void allocate_by_mapping(void) { mallopt(M_MMAP_THRESHOLD, 64 << 10); }

enum { MANY = 1 << 20, SIZE = 8 };
static unsigned char memory[MANY * SIZE];

typedef struct long_lists {
    kvmem_agent *near, *far;
    kvmem_nixl_descriptor *blocks;
    uint32_t *indices;
} long_lists;

static void long_lists_open(long_lists *lists) {
    nixl_find_stand_in();
    lists->near = agent_open("near");
    lists->far = agent_open("far");
    agents_introduce(lists->near, lists->far);
    lists->blocks = test_allocate(MANY * sizeof(*lists->blocks));
    lists->indices = test_allocate(MANY * sizeof(*lists->indices));
    for (uint32_t i = 0; i < MANY; i++) {
        lists->blocks[i] = memory_at(memory + i * SIZE, SIZE);
        lists->indices[i] = i;
    }
}

static void long_lists_close(long_lists *lists) {
    free(lists->blocks);
    free(lists->indices);
    kvmem_agent_destroy(lists->near);
    kvmem_agent_destroy(lists->far);
}

/* The agent's thread frees the lists of a call after its reply, and before it begins the next call. */
static void await_lists_freed(kvmem_agent *agent) {
    EXPECT_OK(kvmem_agent_check_remote_metadata(agent, "far", ERR));
}

/* A call succeeds with enough memory, and fails with less. `made` is the handle that it creates. */
#define EXPECT_SCARCE(made, call, ...)                                                               \
    do {                                                                                             \
        unsigned failures_ = 0;                                                                      \
        for (uint64_t more_ = 16 * MIB; (made) == NULL; more_ += 16 * MIB) {                        \
            await_lists_freed(lists.near);                                                           \
            const struct rlimit before_ = limit_addresses(more_);                                    \
            const kvmem_status status_ = call(__VA_ARGS__, &(made), NULL);                           \
            CHECK_EQ(setrlimit(RLIMIT_AS, &before_), 0);                                             \
            if (status_ == KVMEM_STATUS_OK) break;                                                   \
            CHECK(status_ == KVMEM_STATUS_OUT_OF_MEMORY || status_ == KVMEM_STATUS_NIXL);            \
            failures_++;                                                                             \
            CHECK(more_ < 2048 * MIB);                                                               \
        }                                                                                            \
        CHECK(failures_ > 0);                                                                        \
    } while (0)

TEST(long_lists_without_memory_are_an_error) {
    OPENED(long_lists, lists);
    OWNED(kvmem_segments) segments = NULL;
    EXPECT_SCARCE(segments, kvmem_segments_register, lists.near, lists.blocks, MANY, NULL);
    OWNED(kvmem_request) request = NULL;
    EXPECT_SCARCE(request, kvmem_request_create, lists.near, KVMEM_REQUEST_READ, lists.blocks, "far",
                  lists.blocks, MANY, NULL);
    OWNED(kvmem_prepared) local = NULL;
    OWNED(kvmem_prepared) remote = NULL;
    EXPECT_SCARCE(local, kvmem_prepared_create, lists.near, NULL, lists.blocks, MANY, NULL);
    EXPECT_SCARCE(remote, kvmem_prepared_create, lists.near, "far", lists.blocks, MANY, NULL);
    OWNED(kvmem_request) chosen = NULL;
    EXPECT_SCARCE(chosen, kvmem_request_make, KVMEM_REQUEST_READ, local, lists.indices, remote,
                  lists.indices, MANY, NULL);
    EXPECT_OK(kvmem_request_post(chosen, NULL, 0, ERR));
    EXPECT_OK(kvmem_request_wait(chosen, PATIENCE, ERR));
}
