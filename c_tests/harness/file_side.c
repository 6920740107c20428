// SPDX-License-Identifier: Apache-2.0
// The file is written before the library opens it, and read by pread afterwards.
#include "file_side.h"

#include "harness.h"

kvmem_layout_config kv_aligned_config(const kv_kind *kind) {
    return WITH(kv_config(kind), it.page_size = 16, it.inner_dim = 128, it.alignment = 4096);
}

void file_side_open(file_side *side, const kvmem_layout_config *config, kvmem_agent *agent,
                    const scratch *directory, uint64_t flags, uint32_t seed) {
    kv_model_open(&side->model, config, seed);
    strcpy(side->path, scratch_file(directory, "blocks"));
    write_file(side->path, side->model.memory, side->model.size);
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.path = side->path,
                                      it.flags = KVMEM_DISK_OPEN_EXISTING | flags);
    EXPECT_OK(kvmem_region_create_disk(&disk, &side->file, ERR));
    for (size_t i = 0; i < side->model.num_regions; i++)
        EXPECT_OK(kvmem_region_create_view(side->file, side->model.starts[i], kv_region_size(config),
                                           &side->model.regions[i], ERR));
    kv_side_build(&side->model, agent);
}

void file_side_close(file_side *side) {
    kv_side_close(&side->model);
    kvmem_region_destroy(side->file);
    CHECK_EQ(unlink(side->path), 0);
}

bool file_side_is_direct(const file_side *side) {
    return region_info(side->file).flags & KVMEM_REGION_DIRECT_IO;
}

void file_side_check(file_side *side) {
    EXPECT_OK(kvmem_region_sync(side->file, ERR));
    const int file = open(side->path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    const ssize_t size = pread(file, side->model.memory, side->model.size, 0);
    close(file);
    CHECK_EQ(size, side->model.size);
    kv_side_check(&side->model);
}

void file_side_truncate(const file_side *side, uint64_t size) {
    CHECK_EQ(truncate(side->path, (off_t)size), 0);
}

void file_pair_open(file_pair *pair, const kvmem_layout_config *host, const kvmem_layout_config *file,
                    kvmem_agent *agent, uint64_t flags) {
    pair->directory = scratch_create(temporary_directory());
    kv_side_open(&pair->host, host, agent, 1);
    file_side_open(&pair->file, file, agent, &pair->directory, flags, 2);
}

void file_pair_close(file_pair *pair) {
    file_side_close(&pair->file);
    kv_side_close(&pair->host);
    scratch_remove(&pair->directory);
}

kv_side *file_pair_source(file_pair *pair, bool to_file) { return to_file ? &pair->host : &pair->file.model; }

kv_side *file_pair_destination(file_pair *pair, bool to_file) { return file_pair_source(pair, !to_file); }

kvmem_transfer *file_pair_transfer(file_pair *pair, bool to_file, const kv_job *options) {
    return MADE(kvmem_transfer, kv_prepare, file_pair_source(pair, to_file)->layout,
                file_pair_destination(pair, to_file)->layout, options);
}

void file_pair_check(file_pair *pair) {
    kv_side_check(&pair->host);
    file_side_check(&pair->file);
}

void file_pair_check_moved(file_pair *pair, bool to_file, const kv_move *move) {
    kv_expect_moved(file_pair_destination(pair, to_file), file_pair_source(pair, to_file), move);
    file_pair_check(pair);
}

kvmem_transfer_info file_pair_run(file_pair *pair, bool to_file, const kv_move *move, uint32_t path) {
    const kvmem_transfer_info info = kv_run_by(file_pair_source(pair, to_file)->layout,
                                               file_pair_destination(pair, to_file)->layout, move, path);
    file_pair_check_moved(pair, to_file, move);
    return info;
}

kvmem_layout *temporary_disk_layout(const kvmem_layout_config *config, kvmem_agent *agent, uint64_t flags) {
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.flags = flags);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config, it.agent = agent,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.disk = &disk);
    return MADE(kvmem_layout, kvmem_layout_build, &options);
}
