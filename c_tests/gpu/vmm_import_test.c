// SPDX-License-Identifier: Apache-2.0
// Imported VMM memory: by a file descriptor of another process, a fabric handle, a mapping of an engine.
#include "engine.h"
#include "filled.h"
#include "mapped.h"
#include "owner.h"
#include "caller_context.h"

#include <fcntl.h>
#include <sys/socket.h>

OWNER_ROLE

#define SIZE (4 * MIB)

static kvmem_vmm_memory *import(int fd, int32_t device) {
    return MADE(kvmem_vmm_memory, kvmem_vmm_memory_import_fd, fd, SIZE, device);
}

static kvmem_vmm_memory *create(uint64_t flags) {
    kvmem_vmm_options options = OPTIONS(kvmem_vmm_options, it.flags = flags, it.size = SIZE);
    return MADE(kvmem_vmm_memory, kvmem_vmm_memory_create, &options);
}

static int export(const kvmem_vmm_memory *memory) {
    GET(int32_t, fd, kvmem_vmm_memory_export_fd, memory);
    return fd;
}

TEST(both_processes_access_the_same_bytes) {
    CLEANUP(peer_finish) peer owner = owner_start();
    for (int device = 0; device < driver_devices(); device++) {
        const int fd = owner_create(&owner, device, SIZE, 0x31);
        kvmem_vmm_memory *memory = import(fd, device);
        close(fd);
        MAPPED(here, memory, device, SIZE, KVMEM_ACCESS_READ_WRITE);
        check_device(device, here.address, SIZE, 0x31);
        fill_device(device, here.address, SIZE, 0x13);
        owner_check(&owner, 0x13);
    }
}

TEST(imported_memory_outlives_a_killed_owner) {
    peer owner = owner_start();
    const int fd = owner_create(&owner, 0, SIZE, 0x32);
    MAPPED(here, import(fd, KVMEM_VMM_ANY_DEVICE), 0, SIZE, KVMEM_ACCESS_READ_WRITE);
    close(fd);
    peer_kill(&owner);
    check_device(0, here.address, SIZE, 0x32);
}

/* The driver enforces the access that the importer has set. */
TEST(imported_memory_can_be_mapped_read_only) {
    CLEANUP(peer_finish) peer owner = owner_start();
    const int fd = owner_create(&owner, 0, SIZE, 0x33);
    MAPPED(here, import(fd, 0), 0, SIZE, KVMEM_ACCESS_READ);
    close(fd);
    check_device(0, here.address, SIZE, 0x33);
    static const unsigned char bytes[64];
    enter_device(0);
    CHECK(driver_get()->cuMemcpyHtoD_v2(here.address, bytes, sizeof(bytes)) != CUDA_SUCCESS);
    leave_device(0);
    owner_check(&owner, 0x33);
}

TEST(exporting_imported_memory_fails) {
    CLEANUP(peer_finish) peer owner = owner_start();
    const int fd = owner_create(&owner, 0, SIZE, 0x34);
    OWNED(kvmem_vmm_memory) memory = import(fd, 0);
    close(fd);
    int32_t again = 77;
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "imported memory cannot be exported again",
                   kvmem_vmm_memory_export_fd(memory, &again, ERR));
    CHECK_EQ(again, 77);
    kvmem_fabric_handle handle;
    EXPECT(KVMEM_STATUS_UNSUPPORTED, kvmem_vmm_memory_export_fabric(memory, &handle, ERR));
}

static void refuse_to_map(int fd, uint64_t size) {
    OWN(kvmem_vmm_memory, memory, kvmem_vmm_memory_import_fd, fd, size, 0);
    OWN(kvmem_vmm_range, range, kvmem_vmm_range_create, 2 * SIZE, 0, NULL);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "probably has another size", kvmem_vmm_mapping_create, range, 0,
           memory, NULL);
}

TEST(mapping_with_a_wrong_size_fails) {
    CLEANUP(peer_finish) peer owner = owner_start();
    CLEANUP(test_close) const int fd = owner_create(&owner, 0, SIZE, 0x35);
    refuse_to_map(fd, 2 * SIZE);
    refuse_to_map(fd, SIZE / 2);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "granularity", kvmem_vmm_memory_import_fd, fd, SIZE + 1, 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "0 bytes", kvmem_vmm_memory_import_fd, fd, 0, 0);
}

TEST(the_wrong_device_is_rejected) {
    CLEANUP(peer_finish) peer owner = owner_start();
    CLEANUP(test_close) const int fd = owner_create(&owner, 0, SIZE, 0x36);
    const int32_t wrong[] = {driver_devices(), 1, INT32_MAX};
    for (size_t i = 0; i < NUM(wrong); i++)
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "the memory is located on device 0, not on device",
               kvmem_vmm_memory_import_fd, fd, SIZE, wrong[i]);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "KVMEM_VMM_ANY_DEVICE", kvmem_vmm_memory_import_fd, fd, SIZE, -2);
    CALL(kvmem_vmm_memory_destroy(import(fd, KVMEM_VMM_ANY_DEVICE)));
}

TEST(errors_contain_the_type_of_other_files) {
    int ends[2];
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "is a pipe", kvmem_vmm_memory_import_fd, ends[0], SIZE, 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "is a pipe", kvmem_vmm_memory_import_fd, ends[1], SIZE, 0);
    close(ends[0]);
    close(ends[1]);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "is not open", kvmem_vmm_memory_import_fd, ends[0], SIZE, 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "is not open", kvmem_vmm_memory_import_fd, -1, SIZE, 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "is not open", kvmem_vmm_memory_import_fd, 1 << 30, SIZE, 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "is a socket", kvmem_vmm_memory_import_fd, ends[0], SIZE, 0);
    close(ends[0]);
    close(ends[1]);
    static const char *const paths[] = {"/dev/null", "/proc/self/exe", "/"};
    static const char *const parts[] = {"the device /dev/null", "the file /", "the directory /"};
    for (size_t i = 0; i < NUM(paths); i++) {
        CLEANUP(test_close) const int fd = open(paths[i], O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, parts[i], kvmem_vmm_memory_import_fd, fd, SIZE, 0);
    }
}

TEST(memory_of_the_same_process_can_be_imported) {
    kvmem_vmm_memory *memory = create(KVMEM_VMM_POSIX_FD);
    const int fd = export(memory);
    const mapped there = map_memory(memory, 0, SIZE, KVMEM_ACCESS_READ_WRITE);
    MAPPED(here, import(fd, 0), 0, SIZE, KVMEM_ACCESS_READ);
    close(fd);
    CHECK(here.address != there.address);
    fill_device(0, there.address, SIZE, 0x37);
    unmap_memory(&there);
    check_device(0, here.address, SIZE, 0x37);
}

TEST(importing_leaks_no_descriptors) {
    OWNED(kvmem_vmm_memory) memory = create(KVMEM_VMM_POSIX_FD);
    CLEANUP(test_close) const int fd = export(memory);
    CALL(kvmem_vmm_memory_destroy(import(fd, 0)));
    KEEPS_FILES;
    for (int i = 0; i < 10; i++) {
        CALL(kvmem_vmm_memory_destroy(import(fd, 0)));
        REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "not on device 1000", kvmem_vmm_memory_import_fd, fd, SIZE,
               1000);
    }
}

TEST(exporting_memory_without_the_flag_fails) {
    OWNED(kvmem_vmm_memory) memory = create(0);
    int32_t fd = 77;
    kvmem_fabric_handle handle;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "file descriptor",
                   kvmem_vmm_memory_export_fd(memory, &fd, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "fabric handle",
                   kvmem_vmm_memory_export_fabric(memory, &handle, ERR));
    CHECK_EQ(fd, 77);
}

/* The error depends on whether fabric handles work. */
TEST(invalid_fabric_handles_are_rejected) {
    kvmem_fabric_handle handle;
    memset(&handle, 0x33, sizeof(handle));
    kvmem_vmm_memory *memory = (kvmem_vmm_memory *)&memory;
    const kvmem_status status = kvmem_vmm_memory_import_fabric(&handle, SIZE, 0, &memory, ERR);
    CHECK(status == KVMEM_STATUS_UNSUPPORTED || status == KVMEM_STATUS_INVALID_ARGUMENT);
    CHECK_HAS(test_last_message(), "fabric handle");
    CHECK(memory == NULL);
}

static kvmem_vmm_memory *retain(uint64_t address) {
    return MADE(kvmem_vmm_memory, kvmem_vmm_memory_retain, address);
}

TEST(retained_memory_outlives_the_mapping_of_the_engine) {
    span span;
    span_open(&span, 0, 3, 2);
    const uint64_t size = span.granule;
    fill_device(0, span.address + size, size, 0x38);
    kvmem_vmm_memory *memory = retain(span.address + size + 100);
    int32_t fd = -1;
    /* not created exportable */
    EXPECT(KVMEM_STATUS_INVALID_STATE, kvmem_vmm_memory_export_fd(memory, &fd, ERR));
    MAPPED(here, memory, 0, size, KVMEM_ACCESS_READ_WRITE);
    span_close(&span);
    check_device(0, here.address, size, 0x38);
}

TEST(retained_memory_can_be_exported_if_it_was_created_exportable) {
    const mapped there = map_memory(create(KVMEM_VMM_POSIX_FD), 0, SIZE, KVMEM_ACCESS_READ_WRITE);
    fill_device(0, there.address, SIZE, 0x39);
    kvmem_vmm_memory *memory = retain(there.address + SIZE - 1);
    const int fd = export(memory);
    CALL(kvmem_vmm_memory_destroy(memory));
    unmap_memory(&there);
    MAPPED(here, import(fd, 0), 0, SIZE, KVMEM_ACCESS_READ_WRITE);
    close(fd);
    check_device(0, here.address, SIZE, 0x39);
}

static void refuse_to_retain(uint64_t address) {
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "not VMM memory", kvmem_vmm_memory_retain, address);
}

TEST(retaining_other_memory_fails) {
    int host = 0;
    const uint64_t address = engine_allocate(0, SIZE);
    refuse_to_retain(address);
    engine_free(0, address);
    refuse_to_retain(0);
    refuse_to_retain((uint64_t)(uintptr_t)&host);
    OPENED(span, span, 0, 2, 1);
    refuse_to_retain(span.address + span.granule);
}
