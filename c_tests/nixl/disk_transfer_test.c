// SPDX-License-Identifier: Apache-2.0
// Blocks to disk and back through NIXL's POSIX plugin: every byte of memory and of the file.
#include "agents.h"
#include "harness.h"
#include "resources.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const kvmem_block_pair out_pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
static const kvmem_block_pair back_pairs[] = {{5, 1}, {0, 0}, {4, 6}};
static const kv_move out = {out_pairs, NUM(out_pairs), 0, 0, 3};
static const kv_move back = {back_pairs, NUM(back_pairs), 1, 0, 2};

static kvmem_agent *disk_agent(const char *name) {
    kvmem_agent *agent = agent_open(name);
    EXPECT_OK(kvmem_agent_create_backend(agent, "POSIX", NULL, 0, ERR));
    return agent;
}

/* Pieces of 4 KiB on blocks aligned to 4 KiB: what direct I/O asks for on any device. */
static kvmem_layout_config aligned_config(const kv_kind *kind) {
    kvmem_layout_config config = kv_config(kind);
    config.page_size = 16;
    config.inner_dim = 128;
    config.alignment = 4096;
    return config;
}

/* A layout whose regions are views of the caller's file, placed as the model of its bytes places them. */
typedef struct file_side {
    kv_side model;
    kvmem_region *file;
    char path[256];
} file_side;

static void file_side_open(file_side *side, const kvmem_layout_config *config, kvmem_agent *agent,
                           const scratch *directory, uint64_t flags, uint32_t seed) {
    kv_model_open(&side->model, config, seed);
    strcpy(side->path, scratch_file(directory, "blocks"));
    write_file(side->path, side->model.memory, side->model.size);
    kvmem_disk_options disk;
    kvmem_disk_options_init(&disk, sizeof(disk));
    disk.path = side->path;
    disk.flags = KVMEM_DISK_OPEN_EXISTING | flags;
    EXPECT_OK(kvmem_region_create_disk(&disk, &side->file, ERR));
    for (size_t i = 0; i < side->model.num_regions; i++) {
        EXPECT_OK(kvmem_region_create_view(side->file, side->model.starts[i], kv_region_size(config),
                                           &side->model.regions[i], ERR));
    }
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = config;
    options.agent = agent;
    options.source = KVMEM_LAYOUT_REGIONS;
    options.regions = side->model.regions;
    options.count = side->model.num_regions;
    EXPECT_OK(kvmem_layout_build(&options, &side->model.layout, ERR));
}

/* Reads the whole file through a descriptor of the test's own. */
static void file_side_check(file_side *side) {
    EXPECT_OK(kvmem_region_sync(side->file, ERR));
    const int file = open(side->path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    const ssize_t size = pread(file, side->model.memory, side->model.size, 0);
    close(file);
    CHECK_EQ(size, side->model.size);
    kv_side_check(&side->model);
}

static void file_side_close(file_side *side) {
    kv_side_close(&side->model);
    kvmem_region_destroy(side->file);
    CHECK_EQ(unlink(side->path), 0);
}

static void move_out_and_back(const kvmem_layout_config *memory, const kvmem_layout_config *disk,
                              kvmem_agent *agent, const scratch *directory, uint64_t flags) {
    kv_side host;
    file_side file;
    kv_side_open(&host, memory, agent, 1);
    file_side_open(&file, disk, agent, directory, flags, 2);
    kvmem_transfer_info info = kv_run(host.layout, file.model.layout, &out);
    CHECK_EQ(info.path, KVMEM_PATH_NIXL_FILE_WRITE);
    CHECK_EQ(info.bytes, 5 * 3 * 2 * kv_piece_size(memory));
    kv_expect_moved(&file.model, &host, &out);
    file_side_check(&file);
    kv_side_check(&host);
    info = kv_run(file.model.layout, host.layout, &back);
    CHECK_EQ(info.path, KVMEM_PATH_NIXL_FILE_READ);
    CHECK_EQ(info.num_pieces, 3 * 2 * 2);
    kv_expect_moved(&host, &file.model, &back);
    kv_side_check(&host);
    file_side_check(&file);
    file_side_close(&file);
    kv_side_close(&host);
}

static void every_pair_of_kinds_goes_out_and_comes_back(void) {
    kvmem_agent *agent = disk_agent("offload");
    scratch directory = scratch_create(temporary_directory());
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        const kvmem_layout_config memory = kv_config(&kv_kinds[kinds / KV_NUM_KINDS]);
        const kvmem_layout_config disk = kv_config(&kv_kinds[kinds % KV_NUM_KINDS]);
        move_out_and_back(&memory, &disk, agent, &directory, KVMEM_DISK_BUFFERED);
    }
    scratch_remove(&directory);
    kvmem_agent_destroy(agent);
}

static void direct_io_moves_the_same_bytes(void) {
    kvmem_agent *agent = disk_agent("offload");
    scratch directory = scratch_create(temporary_directory());
    for (size_t kinds = 0; kinds < KV_NUM_KINDS * KV_NUM_KINDS; kinds++) {
        const kvmem_layout_config memory = aligned_config(&kv_kinds[kinds / KV_NUM_KINDS]);
        const kvmem_layout_config disk = aligned_config(&kv_kinds[kinds % KV_NUM_KINDS]);
        move_out_and_back(&memory, &disk, agent, &directory, 0);
    }
    scratch_remove(&directory);
    kvmem_agent_destroy(agent);
}

static kvmem_layout *temporary_layout(const kvmem_layout_config *config, kvmem_agent *agent) {
    kvmem_disk_options disk;
    kvmem_disk_options_init(&disk, sizeof(disk));
    kvmem_layout_options options;
    kvmem_layout_options_init(&options, sizeof(options));
    options.config = config;
    options.agent = agent;
    options.source = KVMEM_LAYOUT_ALLOCATE;
    options.disk = &disk;
    kvmem_layout *layout = NULL;
    EXPECT_OK(kvmem_layout_build(&options, &layout, ERR));
    return layout;
}

/* Offload, wipe, restore: what an engine does with a nameless file. */
static void a_temporary_file_gives_back_what_it_took(void) {
    const kvmem_layout_config config = aligned_config(&kv_kinds[0]);
    const kvmem_block_pair all[] = {{0, 6}, {1, 5}, {2, 4}, {3, 3}, {4, 2}, {5, 1}, {6, 0}};
    const kv_move there_and_back = {all, NUM(all), 0, 0, 3};
    kvmem_agent *agent = disk_agent("offload");
    kvmem_layout *file = temporary_layout(&config, agent);
    kv_side host;
    kv_side_open(&host, &config, agent, 5);
    kv_run(host.layout, file, &there_and_back);
    memset(host.memory + host.starts[0], 0, kv_region_size(&config));
    kv_run(file, host.layout, &there_and_back);
    kv_side_check(&host);
    kvmem_layout_destroy(file);
    kv_side_close(&host);
    kvmem_agent_destroy(agent);
}

/* A read that the file could not serve is an error, not data. */
static void a_file_cut_short_is_an_error(void) {
    const kvmem_layout_config config = aligned_config(&kv_kinds[0]);
    const kvmem_block_pair last[] = {{6, 2}};
    const kv_move one = {last, 1, 0, 0, 3};
    kvmem_agent *agent = disk_agent("offload");
    kvmem_layout *file = temporary_layout(&config, agent);
    kv_side host;
    kv_side_open(&host, &config, agent, 6);
    kvmem_layout_info info;
    EXPECT_OK(kvmem_layout_get_info(file, &info, ERR));
    CHECK_EQ(ftruncate((int)info.device_id, 4096), 0);
    const kvmem_transfer_options options = kv_transfer_options(&one);
    kvmem_transfer *transfer = NULL;
    EXPECT_OK(kvmem_transfer_create(file, host.layout, &options, &transfer, ERR));
    kvmem_status status = kvmem_transfer_submit(transfer, ERR);
    if (status == KVMEM_STATUS_OK) {
        status = kvmem_transfer_wait(transfer, PATIENCE, ERR);
    }
    CHECK(status == KVMEM_STATUS_NIXL || status == KVMEM_STATUS_IO);
    kvmem_transfer_destroy(transfer);
    kvmem_layout_destroy(file);
    kv_side_close(&host);
    kvmem_agent_destroy(agent);
}

static void refuse(const kvmem_layout *source, const kvmem_layout *destination, kvmem_status status,
                   const char *part) {
    const kvmem_transfer_options options = kv_transfer_options(&out);
    kvmem_transfer *transfer = (kvmem_transfer *)&options;
    EXPECT_MESSAGE(status, part, kvmem_transfer_create(source, destination, &options, &transfer, ERR));
    CHECK(transfer == NULL);
}

static void what_cannot_go_to_disk_is_refused(void) {
    const kvmem_layout_config config = aligned_config(&kv_kinds[0]);
    kvmem_agent *agent = disk_agent("offload");
    kvmem_layout *file = temporary_layout(&config, agent);
    kvmem_layout *other_file = temporary_layout(&config, agent);
    refuse(file, other_file, KVMEM_STATUS_UNSUPPORTED, "disk");
    kvmem_layout *local_file = temporary_layout(&config, NULL);
    kv_side host;
    kv_side_open(&host, &config, agent, 1);
    refuse(host.layout, local_file, KVMEM_STATUS_INVALID_STATE, "agent");
    kv_side unregistered;
    kv_side_open(&unregistered, &config, NULL, 2);
    refuse(unregistered.layout, file, KVMEM_STATUS_INVALID_STATE, "agent");
    kv_side_close(&unregistered);
    kv_side_close(&host);
    kvmem_layout_destroy(local_file);
    kvmem_layout_destroy(other_file);
    kvmem_layout_destroy(file);
    kvmem_agent_destroy(agent);
}

static void disk_needs_a_backend_for_files(void) {
    kvmem_agent *agent = agent_open("no_posix");
    kvmem_disk_options disk;
    kvmem_disk_options_init(&disk, sizeof(disk));
    disk.size = MIB;
    kvmem_region *region = NULL;
    EXPECT_OK(kvmem_region_create_disk(&disk, &region, ERR));
    kvmem_registration *registration = (kvmem_registration *)&disk;
    EXPECT_MESSAGE(KVMEM_STATUS_NIXL, "UCX", kvmem_region_register(region, agent, &registration, ERR));
    CHECK(registration == NULL);
    kvmem_region_destroy(region);
    kvmem_agent_destroy(agent);
}

static const test_case cases[] = {
    CASE(every_pair_of_kinds_goes_out_and_comes_back),
    CASE(direct_io_moves_the_same_bytes),
    CASE(a_temporary_file_gives_back_what_it_took),
    CASE(a_file_cut_short_is_an_error),
    CASE(what_cannot_go_to_disk_is_refused),
    CASE(disk_needs_a_backend_for_files),
};
TEST_MAIN
