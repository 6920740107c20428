// SPDX-License-Identifier: Apache-2.0
// Generates fuzz/corpus/share: the shares that kvmem creates of every kind of memory. Run by hand, with the
// stand-in driver, KVMEM_SIM_FABRIC=1, NIXL, and the folder as argument. Values that identify this machine
// and its network are replaced.
#include "forged.h"
#include "memory.h"
#include "parts.h"
#include "blocks.h"

static const char *folder;

static void write_to_folder(const char *name, const void *bytes, size_t size) {
    char path[512];
    const int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    CHECK(length > 0 && (size_t)length < sizeof(path));
    write_file(path, bytes, size);
}

static void write_parcel(const char *name, parcel *parcel) {
    forge_text(parcel, "boot_id", "a boot of a machine");
    write_to_folder(name, parcel->bytes.data, parcel->bytes.size);
}

static void write_region(const char *name, memory_kind kind, uint64_t flags) {
    kvmem_share_options options = OPTIONS(kvmem_share_options, it.flags = flags,
                                          it.transport = memory_transport(kind));
    OWNED(kvmem_region) region = memory_create(kind, MEMORY_SIZE, NULL);
    OWN(kvmem_region, part, kvmem_region_create_view, region, MEMORY_EXTENT, MEMORY_EXTENT);
    OWN(kvmem_share, share, kvmem_share_create_region, part, &options);
    CLEANUP(parcel_close) parcel parcel = parcel_of(share);
    write_parcel(name, &parcel);
}

static void write_layout(const char *name, memory_kind kind, size_t layout_kind, blocks_placement placement) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[layout_kind]);
    OWNED(kvmem_layout) layout = blocks_build(kind, &config, placement, NULL);
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
    CLEANUP(parcel_close) parcel parcel = parcel_of(share);
    write_parcel(name, &parcel);
}

/* Order: token, head; one region per layer. */
static void write_ordered_layout(void) {
    const kvmem_layout_config config = WITH(blocks_config(&kv_kinds[1]), it.num_heads = 8,
                                            it.order = "L/BOHNC");
    OWNED(kvmem_layout) layout = blocks_build(MEMORY_SYSTEM, &config, BLOCKS_APART, NULL);
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
    CLEANUP(parcel_close) parcel parcel = parcel_of(share);
    write_parcel("layout-ordered", &parcel);
}

static void write_ordered_descriptor(void) {
    const kvmem_layout_config config = WITH(blocks_config(&kv_kinds[0]), it.num_heads = 8,
                                            it.order = "BHLONC");
    OWNED(kvmem_agent) agent = agent_open("corpus");
    OWNED(kvmem_layout) layout = blocks_build(MEMORY_SYSTEM, &config, BLOCKS_TOGETHER, agent);
    CLEANUP(parcel_close) parcel descriptor = {.bytes = layout_descriptor(layout)};
    write_parcel("layout-descriptor-ordered", &descriptor);
}

/* Parts in separate regions, and the descriptor of parts that are registered with an agent. */
static void write_parts(void) {
    const part_shape shapes[] = {{"data", "L/BNHC", 2, 1, 4, 2, 16, 1}, {"scales", "LBNC", 2, 1, 4, 0, 8, 1}};
    OWNED(kvmem_agent) agent = agent_open("corpus");
    const kvmem_system_options system = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE);
    kvmem_layout_options options = OPTIONS(kvmem_layout_options, it.source = KVMEM_LAYOUT_ALLOCATE,
                                           it.system = &system);
    OWNED(kvmem_layout) layout = parts_build(shapes, NUM(shapes), &options);
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
    CLEANUP(parcel_close) parcel parcel = parcel_of(share);
    write_parcel("layout-parts", &parcel);
    options.agent = agent;
    OWNED(kvmem_layout) registered = parts_build(shapes, NUM(shapes), &options);
    CLEANUP(message_free) message descriptor = layout_descriptor(registered);
    /* The descriptors in it have their own checksums, so the boot id is unchanged. */
    write_to_folder("layout-descriptor-parts", descriptor.data, descriptor.size);
}

/* A layout that NIXL can access, and its own descriptor. */
static void write_remote_layout(void) {
    const kvmem_layout_config config = blocks_config(&kv_kinds[0]);
    OWNED(kvmem_agent) agent = agent_open("corpus");
    OWNED(kvmem_layout) layout = blocks_build(MEMORY_SYSTEM, &config, BLOCKS_TOGETHER, agent);
    CLEANUP(parcel_close) parcel descriptor = {.bytes = layout_descriptor(layout)};
    write_parcel("layout-descriptor", &descriptor);
    OWN(kvmem_share, share, kvmem_share_create_layout, layout, NULL);
    CLEANUP(parcel_close) parcel parcel = parcel_of(share);
    forge_blob(&parcel, "metadata", "metadata", 8);
    forge_blob(&parcel, "descriptor", descriptor.bytes.data, descriptor.bytes.size);
    write_parcel("layout-with-nixl", &parcel);
}

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    folder = argv[1];
    write_region("region-system", MEMORY_SYSTEM, 0);
    write_region("region-system-to-read", MEMORY_SYSTEM, KVMEM_SHARE_READ_ONLY);
    write_region("region-disk", MEMORY_DISK, 0);
    write_region("region-pinned", MEMORY_PINNED, 0);
    write_region("region-device", MEMORY_DEVICE, 0);
    write_region("region-elastic", MEMORY_ELASTIC, 0);
    write_region("region-fabric", MEMORY_FABRIC, 0);
    write_region("region-mapped", MEMORY_MAPPED, 0);
    write_layout("layout-system-contiguous", MEMORY_SYSTEM, 0, BLOCKS_TOGETHER);
    write_layout("layout-system-apart", MEMORY_SYSTEM, 1, BLOCKS_APART);
    write_layout("layout-disk", MEMORY_DISK, 2, BLOCKS_TOGETHER);
    write_layout("layout-device", MEMORY_DEVICE, 1, BLOCKS_TOGETHER);
    write_layout("layout-mapped", MEMORY_MAPPED, 1, BLOCKS_APART);
    write_layout("layout-elastic", MEMORY_ELASTIC, 2, BLOCKS_TOGETHER);
    write_ordered_layout();
    write_ordered_descriptor();
    write_parts();
    write_remote_layout();
    return EXIT_SUCCESS;
}
