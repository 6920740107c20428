// SPDX-License-Identifier: Apache-2.0
#include "object_sides.h"

const kvmem_block_pair out_pairs[] = {{6, 0}, {0, 5}, {1, 6}, {3, 3}, {4, 4}};
const kv_move out = {out_pairs, NUM(out_pairs), 0, 0, 3};
const kvmem_block_pair back_pairs[] = {{5, 1}, {0, 0}, {4, 6}};
const kv_move back = {back_pairs, NUM(back_pairs), 0, 0, 3};
const kv_move part_back = {back_pairs, NUM(back_pairs), 1, 0, 2};

kvmem_agent *store_agent(const char *name) {
    object_store_start();
    EXPECT_OK(kvmem_nixl_load(NULL, ERR));
    GET(kvmem_agent *, agent, kvmem_agent_create, name, NULL);
    object_store_create_backend(agent);
    return agent;
}

kvmem_region *name_objects(const char *prefix, uint64_t object_size, uint64_t count) {
    return MADE(kvmem_region, kvmem_region_create_object,
                REF(OPTIONS(kvmem_object_options, it.key_prefix = prefix, it.object_size = object_size,
                            it.count = count)));
}

kvmem_layout_config block_config(void) { return kv_config(&kv_kinds[0]); }

kvmem_layout *lay_out_parts(const char *prefix, uint64_t object_size, kvmem_agent *agent) {
    const kvmem_layout_config config = block_config();
    OWNED(kvmem_region) region = name_objects(prefix, object_size, kv_region_size(&config) / object_size);
    return regions_lay_out(&config, &region, 1, agent);
}

kvmem_layout *lay_out(const char *prefix, kvmem_agent *agent) {
    const kvmem_layout_config config = block_config();
    return lay_out_parts(prefix, kv_block_stride(&config), agent);
}

void model_open(model *model) { kv_model_open(&model->side, REF(block_config()), 9); }
void model_close(model *model) { kv_side_close(&model->side); }
