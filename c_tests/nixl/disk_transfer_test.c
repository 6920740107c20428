// SPDX-License-Identifier: Apache-2.0
// Transfers to disk and back through NIXL's POSIX plugin, with every byte of memory and of the file checked.
#include "harness.h"

static const kvmem_block_pair out_pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
static const kvmem_block_pair back_pairs[] = {{5, 1}, {0, 0}, {4, 6}};
static const kv_move out = {out_pairs, NUM(out_pairs), 0, 0, 3};
static const kv_move back = {back_pairs, NUM(back_pairs), 1, 0, 2};

static kvmem_agent *disk_agent(const char *name) {
    kvmem_agent *agent = agent_open(name);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    return agent;
}

static void every_pair_of_kinds(kvmem_layout_config (*config)(const kv_kind *), uint64_t flags) {
    OWNED(kvmem_agent) agent = disk_agent("offload");
    EACH_TWO_KV_KINDS(here, there) {
        const kvmem_layout_config memory = config(here), disk = config(there);
        OPENED(file_pair, pair, &memory, &disk, agent, flags);
        kvmem_transfer_info info = file_pair_run(&pair, true, &out, KVMEM_METHOD_NIXL);
        CHECK_EQ(info.method, KVMEM_METHOD_NIXL);
        CHECK_EQ(info.bytes, 5 * 3 * 2 * kv_piece_size(&memory));
        info = file_pair_run(&pair, false, &back, KVMEM_METHOD_NIXL);
        CHECK_EQ(info.method, KVMEM_METHOD_NIXL);
        CHECK_EQ(info.num_pieces, 3 * 2 * 2);
    }
}

TEST_CALL(every_pair_of_kinds_is_written_and_read_back, every_pair_of_kinds(kv_config, KVMEM_DISK_BUFFERED))
TEST_CALL(direct_io_moves_the_same_bytes, every_pair_of_kinds(kv_aligned_config, 0))

/* Offload, wipe, restore, as an engine does with a temporary file. */
TEST(a_temporary_file_restores_the_blocks_written_to_it) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const kv_move there_and_back = KV_MOVE(3, {0, 6}, {1, 5}, {2, 4}, {3, 3}, {4, 2}, {5, 1}, {6, 0});
    OWNED(kvmem_agent) agent = disk_agent("offload");
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, agent, 0);
    OPENED(kv_side, host, &config, agent, 5);
    kv_run_by(host.layout, file, &there_and_back, KVMEM_METHOD_NIXL);
    memset(host.memory + host.starts[0], 0, kv_region_size(&config));
    kv_run_by(file, host.layout, &there_and_back, KVMEM_METHOD_NIXL);
    kv_side_check(&host);
}

/* The plugin may write on the agent's thread. The default action of SIGXFSZ would end the process. */
TEST(a_limit_on_files_is_an_error_and_no_signal) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const kv_move one = KV_MOVE(3, {6, 6});
    OWNED(kvmem_agent) agent = disk_agent("offload");
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, agent, 0);
    OPENED(kv_side, host, &config, agent, 7);
    kv_job options = WITH(kv_job_of(&one), it.transfer.method = KVMEM_METHOD_NIXL);
    GET(kvmem_transfer *, transfer, kv_prepare, host.layout, file, &options);
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit little = {4096, before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
    const kvmem_status status = submit_and_wait(transfer, PATIENCE);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_EQ(status, KVMEM_STATUS_NIXL);
    kvmem_transfer_destroy(transfer);
    kv_run_by(host.layout, file, &one, KVMEM_METHOD_NIXL);
}

/* Reading past the end of the file is an error. */
TEST(a_truncated_file_is_an_error) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    const kv_move one = KV_MOVE(3, {6, 2});
    OWNED(kvmem_agent) agent = disk_agent("offload");
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, agent, 0);
    OPENED(kv_side, host, &config, agent, 6);
    CHECK_EQ(ftruncate((int)layout_info(file).device_id, 4096), 0);
    kv_job options = WITH(kv_job_of(&one), it.transfer.method = KVMEM_METHOD_NIXL);
    OWN(kvmem_transfer, transfer, kv_prepare, file, host.layout, &options);
    const kvmem_status status = submit_and_wait(transfer, PATIENCE);
    CHECK(status == KVMEM_STATUS_NIXL || status == KVMEM_STATUS_IO);
}

static void refuse(const kvmem_layout *source, const kvmem_layout *destination, uint32_t method,
                   kvmem_status status, const char *part) {
    REFUSE(status, part, kv_prepare, source, destination, KV_JOB(&out, it.transfer.method = method));
}

TEST(layouts_that_cannot_be_written_to_disk_fail) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OWNED(kvmem_agent) agent = disk_agent("offload");
    OWNED(kvmem_layout) file = temporary_disk_layout(&config, agent, 0);
    OWNED(kvmem_layout) other_file = temporary_disk_layout(&config, agent, 0);
    refuse(file, other_file, 0, KVMEM_STATUS_UNSUPPORTED, "disk");
    OWNED(kvmem_layout) local_file = temporary_disk_layout(&config, NULL, 0);
    OPENED(kv_side, host, &config, agent, 1);
    refuse(host.layout, local_file, KVMEM_METHOD_NIXL, KVMEM_STATUS_INVALID_STATE, "agent");
    OPENED(kv_side, unregistered, &config, NULL, 2);
    refuse(unregistered.layout, file, KVMEM_METHOD_NIXL, KVMEM_STATUS_INVALID_STATE, "agent");
    refuse(file, host.layout, KVMEM_METHOD_NIXL_STAGED, KVMEM_STATUS_UNSUPPORTED, "NIXL, staged");
}

static kvmem_status create(const kvmem_layout *host, const kvmem_layout *file, bool to_file,
                           const kv_job *options, kvmem_transfer **transfer) {
    return kv_prepare(to_file ? host : file, to_file ? file : host, options, transfer, ERR);
}

/* A buffered file uses the page cache whatever reads it; a direct one does not. */
TEST(guarantees_for_files_are_the_same_with_nixl) {
    const kvmem_layout_config config = kv_aligned_config(&kv_kinds[0]);
    OWNED(kvmem_agent) agent = disk_agent("offload");
    OWNED(kvmem_layout) direct = temporary_disk_layout(&config, agent, KVMEM_DISK_DIRECT_REQUIRED);
    OWNED(kvmem_layout) buffered = temporary_disk_layout(&config, agent, KVMEM_DISK_BUFFERED);
    OPENED(kv_side, host, &config, agent, 1);
    for (int to_file = 0; to_file < 2; to_file++) {
        kv_job options = kv_job_of(&out);
        options.transfer.method = KVMEM_METHOD_NIXL;
        options.transfer.flags = KVMEM_TRANSFER_ZERO_COPY;
        OWNED(kvmem_transfer) transfer = NULL;
        EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "page cache",
                       create(host.layout, buffered, to_file, &options, &transfer));
        options.transfer.flags = KVMEM_TRANSFER_NO_HOST_BOUNCE;
        EXPECT_OK(create(host.layout, buffered, to_file, &options, &transfer));
        kvmem_transfer_destroy(transfer);
        options.transfer.flags = KVMEM_TRANSFER_ZERO_COPY | KVMEM_TRANSFER_NO_HOST_BOUNCE;
        EXPECT_OK(create(host.layout, direct, to_file, &options, &transfer));
        RUN(transfer);
    }
}

TEST(disk_needs_a_backend_for_files) {
    OWNED(kvmem_agent) agent = agent_open("no_posix");
    OWN(kvmem_region, region, kvmem_region_create_disk, REF(OPTIONS(kvmem_disk_options, it.size = MIB)));
    REFUSE(KVMEM_STATUS_NIXL, "UCX", kvmem_region_register, region, agent);
}
