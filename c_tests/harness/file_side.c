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

kvmem_layout *temporary_disk_layout(const kvmem_layout_config *config, kvmem_agent *agent, uint64_t flags) {
    kvmem_disk_options disk = OPTIONS(kvmem_disk_options, it.flags = flags);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.config = config, it.agent = agent,
                                           it.source = KVMEM_LAYOUT_ALLOCATE, it.disk = &disk);
    GET(kvmem_layout *, layout, kvmem_layout_build, &options);
    return layout;
}
