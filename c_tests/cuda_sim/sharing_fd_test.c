// SPDX-License-Identifier: Apache-2.0
// Sharing memory handles between processes by file descriptors.
#include "driver_test.h"

#include <fcntl.h>

#define POSIX_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
#define DEVICE 1

enum { READ = 1, HAVE_READ, STOP };

static int export(CUmemGenericAllocationHandle handle) {
    CU_GET(int, fd, cuMemExportToShareableHandle(&fd, handle, POSIX_FD, 0));
    CHECK(fd >= 0);
    return fd;
}

static CUmemGenericAllocationHandle import(int fd) {
    CUmemGenericAllocationHandle handle = 0;
    CU(cuMemImportFromShareableHandle(&handle, POINTER(fd), POSIX_FD));
    return handle;
}

static CUdeviceptr map_handle(CUmemGenericAllocationHandle handle, CUmemAccess_flags flags) {
    const CUmemAccessDesc access = access_for(DEVICE, flags);
    const CUdeviceptr address = reserve(GRANULE);
    CU(cuMemMap(address, GRANULE, 0, handle, 0));
    CU(cuMemSetAccess(address, GRANULE, &access, 1));
    CU(cuMemRelease(handle));
    return address;
}

/* Imports and maps memory with read access, and checks its contents for each READ message. */
ROLE(be_importer) {
    OPEN_DEVICE(DEVICE);
    const int fd = receive_fd(socket);
    const CUmemGenericAllocationHandle handle = import(fd);
    CU_GET(CUmemAllocationProp, prop, cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    CHECK_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    CHECK_EQ(prop.location.id, DEVICE);
    CHECK_EQ(prop.requestedHandleTypes, 0);
    int again = -1;
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&again, handle, POSIX_FD, 0));
    close(fd);
    OWN_MAPPED(address, map_handle(handle, CU_MEM_ACCESS_FLAGS_PROT_READ), GRANULE);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(address, 0, 64));
    uint32_t tag = 0;
    message received = frame_receive(socket, &tag);
    while (tag == READ) {
        check_device_filled(address, received.data[0], GRANULE);
        free(received.data);
        frame_send(socket, HAVE_READ, "", 0);
        received = frame_receive(socket, &tag);
    }
    free(received.data);
}

/* Exports memory, and waits for STOP. */
ROLE(be_exporter) {
    open_device(DEVICE);
    const CUmemGenericAllocationHandle handle = create_handle(DEVICE, GRANULE);
    const int fd = export(handle);
    const CUdeviceptr address = map_handle(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CU(cuMemsetD8_v2(address, 9, GRANULE));
    CU(cuCtxSynchronize());
    send_fd(socket, fd);
    free(frame_expect(socket, STOP).data);
}

static void expect_read(const peer *importer, unsigned char value) {
    frame_send(importer->socket, READ, &value, 1);
    free(frame_expect(importer->socket, HAVE_READ).data);
}

TEST(an_importer_reads_what_the_exporter_writes) {
    OPEN_DEVICE(DEVICE);
    const CUmemGenericAllocationHandle handle = create_handle(DEVICE, GRANULE);
    const int fd = export(handle);
    const CUdeviceptr address = map_handle(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CLEANUP(peer_finish) peer importer = peer_start("be_importer");
    send_fd(importer.socket, fd);
    close(fd);
    for (unsigned char value = 1; value < 4; value++) {
        CU(cuMemsetD8_v2(address, value, GRANULE));
        CU(cuCtxSynchronize());
        expect_read(&importer, value);
    }
    unmap_and_free(address, GRANULE);
    expect_read(&importer, 3); /* the memory lives as long as the import */
    frame_send(importer.socket, STOP, "", 0);
}

TEST(memory_outlives_a_killed_exporter) {
    OPEN_DEVICE(DEVICE);
    peer exporter = peer_start("be_exporter");
    const int fd = receive_fd(exporter.socket);
    OWN_MAPPED(address, map_handle(import(fd), CU_MEM_ACCESS_FLAGS_PROT_READ), GRANULE);
    peer_kill(&exporter);
    close(fd);
    check_device_filled(address, 9, GRANULE);
}

TEST(exports_have_different_fds_with_close_on_exec) {
    NOTHING_LEFT;
    OWN_HANDLE(handle, DEVICE, GRANULE);
    const int first = export(handle);
    const int second = export(handle);
    CHECK(first != second);
    CHECK_EQ(fcntl(first, F_GETFD), FD_CLOEXEC);
    close(first);
    close(second);
}

TEST(exports_are_checked) {
    int fd = -1;
    CUmemAllocationProp prop = device_prop(0);
    NOTHING_LEFT;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CU_GET(CUmemGenericAllocationHandle, plain, cuMemCreate(&plain, GRANULE, &prop, 0));
    OWN_HANDLE(handle, 0, GRANULE);
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, plain, POSIX_FD, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE,
              cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_NONE, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE,
              cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, POSIX_FD, 1));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(NULL, handle, POSIX_FD, 0));
    CHECK_EQ(fd, -1);
    CU(cuMemRelease(plain));
}

TEST(imports_are_checked) {
    CUmemGenericAllocationHandle handle = 77;
    NOTHING_LEFT;
    const int null_file = open("/dev/null", O_RDWR | O_CLOEXEC);
    CU_EXPECT(CUDA_ERROR_UNKNOWN, cuMemImportFromShareableHandle(&handle, POINTER(null_file), POSIX_FD));
    CU_EXPECT(CUDA_ERROR_UNKNOWN, cuMemImportFromShareableHandle(&handle, POINTER(-1), POSIX_FD));
    CU_EXPECT(CUDA_ERROR_UNKNOWN, cuMemImportFromShareableHandle(&handle, POINTER(999), POSIX_FD));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE,
              cuMemImportFromShareableHandle(&handle, POINTER(null_file), CU_MEM_HANDLE_TYPE_NONE));
    CU_EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(NULL, POINTER(null_file), POSIX_FD));
    CHECK_EQ(handle, 77);
    close(null_file);
}

TEST(importing_in_the_same_process_returns_another_handle) {
    OPEN_DEVICE(DEVICE);
    const CUmemGenericAllocationHandle handle = create_handle(DEVICE, GRANULE);
    const int fd = export(handle);
    const CUmemGenericAllocationHandle imported = import(fd);
    CHECK(imported != handle);
    OWN_MAPPED(one, map_handle(handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), GRANULE);
    OWN_MAPPED(two, map_handle(imported, CU_MEM_ACCESS_FLAGS_PROT_READ), GRANULE);
    CU(cuMemsetD8_v2(one, 6, GRANULE));
    check_device_filled(two, 6, GRANULE);
    close(fd);
}

TEST(an_import_leaves_no_open_file) {
    NOTHING_LEFT;
    OWN_HANDLE(handle, DEVICE, GRANULE);
    const int fd = export(handle);
    CU(cuMemRelease(import(fd)));
    const size_t before = count_open_files();
    CU(cuMemRelease(import(fd)));
    CHECK_EQ(count_open_files(), before);
    close(fd);
}
