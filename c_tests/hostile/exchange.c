// SPDX-License-Identifier: Apache-2.0
// Bytes that processes of a case pass to each other.
#include "hostile.h"

void hostile_put(const char *name, const void *data, size_t size) {
    char temporary[210], path[200];
    snprintf(path, sizeof(path), "%s", hostile_path(name));
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    write_file(temporary, data, size);
    CHECK_EQ(chmod(temporary, 0644), 0);
    CHECK_EQ(rename(temporary, path), 0);
}

message hostile_take(const char *name) {
    const char *path = hostile_path(name);
    AWAIT(access(path, F_OK) == 0);
    message taken = {.size = file_length(path)};
    taken.data = test_allocate(taken.size + 1);
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    CHECK_EQ(fread(taken.data, 1, taken.size, file), taken.size);
    fclose(file);
    return taken;
}

void hostile_put_layout(kvmem_agent *agent, const kvmem_layout *layout) {
    CLEANUP(message_free) message metadata = agent_metadata(agent);
    CLEANUP(message_free) message descriptor = layout_descriptor(layout);
    hostile_put("metadata", metadata.data, metadata.size);
    hostile_put("descriptor", descriptor.data, descriptor.size);
}

message hostile_take_layout(kvmem_agent *agent, kvmem_layout **layout) {
    CLEANUP(message_free) message metadata = hostile_take("metadata");
    const message descriptor = hostile_take("descriptor");
    agent_load(agent, &metadata);
    *layout = MADE(kvmem_layout, kvmem_layout_import, agent, descriptor.data, descriptor.size);
    return descriptor;
}
