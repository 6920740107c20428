// SPDX-License-Identifier: Apache-2.0
// Memory that is shared read-only cannot be written: by the CPU, through its files, or by the library.
#include "driver.h"
#include "forged.h"
#include "kinds.h"
#include "offer.h"
#include "opened.h"

HOLDER_ROLE

static const kvmem_share_options to_be_read = {.struct_size = sizeof(to_be_read),
                                               .flags = KVMEM_SHARE_READ_ONLY};

/* The kernel writes there on behalf of this process, and returns EFAULT; a store would kill the process. */
static void check_mapping_cannot_be_written(const kvmem_region *region) {
    int ends[2];
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_EQ(write(ends[1], "x", 1), 1);
    CHECK_EQ(read(ends[0], (void *)(uintptr_t)region_info(region).address, 1), -1);
    CHECK_EQ(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
}

static void check_cpu_cannot_write(const kvmem_region *region) {
    void *start = (void *)(uintptr_t)region_info(region).address;
    check_mapping_cannot_be_written(region);
    CHECK_EQ(mprotect(start, 4096, PROT_READ | PROT_WRITE), -1);
    CHECK_EQ(errno, EACCES);
    CHECK_EQ(madvise(start, 4096, MADV_REMOVE), -1);
}

static void check_file_cannot_be_written(int fd) {
    CHECK_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    CHECK_EQ(pwrite(fd, "x", 1, 0), -1);
    CHECK_EQ(errno, EBADF);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    CHECK_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
}

/* The driver fails to start the copy, and stays usable. Its error code is not specified. */
static void check_driver_cannot_write(const kvmem_region *region) {
    static const unsigned char other[4096] = {0xA5, 0x5A};
    const kvmem_region_info info = region_info(region);
    const uint64_t ends[] = {info.address, info.address + info.size - sizeof(other)};
    for (size_t i = 0; i < NUM(ends); i++) {
        enter_device(info.device);
        const CUresult result = driver_get()->cuMemcpyHtoD_v2(ends[i], other, sizeof(other));
        const CUresult after = driver_get()->cuStreamSynchronize(NULL);
        leave_device(info.device);
        if (result == CUDA_SUCCESS && after == CUDA_SUCCESS) {
            FAIL("memory that is shared read-only was written at %#llx", (unsigned long long)ends[i]);
        }
    }
}

static void check_cannot_be_written(const kvmem_region *region, memory_kind kind) {
    const kvmem_region_info info = region_info(region);
    CHECK_EQ(info.flags & KVMEM_REGION_READ_ONLY, KVMEM_REGION_READ_ONLY);
    if (info.tier == KVMEM_TIER_SYSTEM) check_cpu_cannot_write(region);
    else if (info.tier == KVMEM_TIER_DISK) check_file_cannot_be_written(info.fd);
    else if (memory_is_mapped_apart(kind)) check_driver_cannot_write(region);
}

TEST_EACH_KIND(a_read_only_share_can_only_be_read) {
    OPENED(offer, fixture, kind, &to_be_read);
    OWNED(kvmem_share) share = parcel_share(&fixture.parcel);
    CHECK_EQ(share_info(share).read_only, 1);
    CHECK_EQ(share_info(share).transport, memory_transport_found(kind));
    OWNED(kvmem_region) region = open_parcel(&fixture.parcel, 0);
    memory_check(region, 1);
    check_cannot_be_written(region, kind);
    memory_check(region, 1);
    holder_check(&fixture.owner, HOLDING_OWN, 1);
    OWN(kvmem_region, view, kvmem_region_create_view, region, 0, 4096);
    CHECK_EQ(region_info(view).flags & KVMEM_REGION_READ_ONLY, KVMEM_REGION_READ_ONLY);
    holder_fill(&fixture.owner, HOLDING_OWN, 2);
    memory_check(region, 2);
}

TEST_EACH_KIND(an_importer_may_open_with_fewer_rights) {
    OPENED(offer, fixture, kind, NULL);
    OWNED(kvmem_region) reader = open_parcel(&fixture.parcel, KVMEM_OPEN_READ_ONLY);
    OWNED(kvmem_region) writer = open_parcel(&fixture.parcel, 0);
    if (region_info(reader).tier == KVMEM_TIER_SYSTEM) {
        check_mapping_cannot_be_written(reader);
    } else if (memory_is_mapped_apart(kind)) {
        check_driver_cannot_write(reader);
        memory_check(reader, 1);
    }
    CHECK_EQ(region_info(reader).flags & KVMEM_REGION_READ_ONLY, KVMEM_REGION_READ_ONLY);
    CHECK_EQ(region_info(writer).flags & KVMEM_REGION_READ_ONLY, 0);
    memory_fill(writer, 2);
    memory_check(reader, 2);
}

/* With a flag, the call gets that right or fails. Without one, it gets the rights that are granted. */
TEST_EACH_KIND(the_access_flags_select_the_rights) {
    OPENED(offer, reading, kind, &to_be_read);
    refuse_parcel(&reading.parcel, KVMEM_OPEN_READ_WRITE, KVMEM_STATUS_PERMISSION_DENIED,
                  "KVMEM_SHARE_READ_ONLY");
    refuse_parcel(&reading.parcel, KVMEM_OPEN_READ_WRITE | KVMEM_OPEN_READ_ONLY,
                  KVMEM_STATUS_INVALID_ARGUMENT, "exclude each other");
    OPENED(offer, writing, kind, NULL);
    OWNED(kvmem_region) asked = open_parcel(&writing.parcel, KVMEM_OPEN_READ_WRITE);
    OWNED(kvmem_region) given = open_parcel(&writing.parcel, 0);
    CHECK_EQ(region_info(asked).address, region_info(given).address);
    CHECK_EQ(region_info(asked).flags & KVMEM_REGION_READ_ONLY, 0);
}

/* An importer changes the granted access in the bytes, and sends them back as if it shared memory of its own.
   The owner would find its original, and write it for the importer. A process that another one has granted
   write access would do the same. */
static void expect_no_forged_grant(const kvmem_region *region) {
    parcel forged = parcel_of_region(region, &to_be_read);
    OWNED(kvmem_region) reader = open_parcel(&forged, 0);
    CHECK_EQ(region_info(reader).address, region_info(region).address);
    forge_text(&forged, "access", "ReadWrite");
    refuse_parcel(&forged, KVMEM_OPEN_READ_WRITE, KVMEM_STATUS_PERMISSION_DENIED, "read access only");
    refuse_parcel(&forged, 0, KVMEM_STATUS_PERMISSION_DENIED, "read access only");
    parcel_close(&forged);
}

TEST_EACH_KIND(nobody_writes_memory_for_an_importer_that_changed_its_rights) {
    if (memory_transport_found(kind) != KVMEM_SHARE_FD || memory_has_driver_fds(kind)) return;
    OPENED(offer, fixture, kind, NULL);
    SCRATCH(directory);
    OWNED(kvmem_region) own = memory_create(kind, MEMORY_SIZE, scratch_file(&directory, "own"));
    expect_no_forged_grant(own);
    OWNED(kvmem_region) written = open_parcel(&fixture.parcel, KVMEM_OPEN_READ_WRITE);
    parcel reading = parcel_copy(&fixture.parcel);
    close(reading.fds[1]);
    CHECK((reading.fds[1] = reopen_fd(fixture.parcel.fds[1], O_RDONLY)) >= 0);
    refuse_parcel(&reading, KVMEM_OPEN_READ_WRITE, KVMEM_STATUS_PERMISSION_DENIED, "read access only");
    parcel_close(&reading);
}

/* Every file descriptor of a read-only share. */
TEST_EACH_KIND(descriptors_of_a_read_only_share_are_read_only) {
    OPENED(offer, fixture, kind, &to_be_read);
    check_file_cannot_be_written(fixture.parcel.fds[0]); /* the control block */
    if (memory_tier(kind) != KVMEM_TIER_DEVICE && memory_tier(kind) != KVMEM_TIER_ELASTIC) {
        CHECK_EQ(fixture.parcel.num_fds, 2);
        check_file_cannot_be_written(fixture.parcel.fds[1]);
    }
}

/* Only the owner may write the control block, even if all rights are granted: opening its descriptor again
   for writing fails. */
TEST(only_the_owner_writes_the_control_block) {
    OPENED(offer, fixture, FIRST_KIND, NULL);
    const int again = reopen_fd(fixture.parcel.fds[0], O_RDWR); /* only privileged processes can open it */
    if (again >= 0) {
        CHECK_EQ(pwrite(again, "x", 1, 0), -1);
        CHECK_EQ(errno, EPERM);
        CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
        CHECK_EQ(ftruncate(again, 0), -1);
        close(again);
    }
}

/* Opens the memory of a parcel again for writing, as the same user may, and tries to write it. Returns
   whether that succeeds. */
static bool can_be_written_again(const parcel *parcel) {
    const int fd = reopen_fd(parcel->fds[1], O_RDWR);
    CHECK(fd >= 0);
    void *start = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const bool can = start != MAP_FAILED || pwrite(fd, "x", 1, 0) == 1;
    if (start != MAP_FAILED) munmap(start, 4096);
    close(fd);
    return can;
}

/* Without the seal, read-only access is a promise of the importer: the control of this test. */
TEST_EACH_KIND(a_sealed_share_cannot_be_written_by_any_process) {
    if (memory_transport_found(kind) != KVMEM_SHARE_FD || memory_has_driver_fds(kind)) return;
    const kvmem_share_options sealed =
        OPTIONS(kvmem_share_options, it.flags = KVMEM_SHARE_READ_ONLY | KVMEM_SHARE_WRITE_SEALED);
    SCRATCH(directory);
    OWNED(kvmem_region) region = memory_create(kind, MEMORY_SIZE, scratch_file(&directory, "own"));
    if (memory_tier(kind) == KVMEM_TIER_DISK) {
        REFUSE(KVMEM_STATUS_UNSUPPORTED, "a file cannot be sealed", kvmem_share_create_region, region,
               &sealed);
        return;
    }
    parcel parcel = parcel_of_region(region, &sealed);
    CHECK(!can_be_written_again(&parcel));
    memory_fill(region, 3); /* the owner writes on */
    OWNED(kvmem_region) reader = open_parcel(&parcel, 0);
    memory_check(reader, 3);
    parcel_close(&parcel);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_SHARE_READ_ONLY", kvmem_share_create_region, region, NULL);
    parcel = parcel_of_region(region, &to_be_read);
    CHECK(!can_be_written_again(&parcel));
    parcel_close(&parcel);
}

/* The decision of the first share holds: importers may write from then on. */
TEST_EACH_KIND(memory_that_was_shared_unsealed_is_not_sealed_later) {
    if (kind != MEMORY_SYSTEM && kind != MEMORY_PINNED) return;
    const kvmem_share_options sealed =
        OPTIONS(kvmem_share_options, it.flags = KVMEM_SHARE_READ_ONLY | KVMEM_SHARE_WRITE_SEALED);
    OWNED(kvmem_region) region = memory_create(kind, MEMORY_SIZE, NULL);
    parcel parcel = parcel_of_region(region, &to_be_read);
    CHECK(can_be_written_again(&parcel));
    parcel_close(&parcel);
    REFUSE(KVMEM_STATUS_INVALID_STATE, "shared before", kvmem_share_create_region, region, &sealed);
    parcel = parcel_of_region(region, NULL);
    parcel_close(&parcel);
}

TEST(memory_that_was_created_sealed_is_shared_read_only) {
    OWNED(kvmem_region) region = region_create_system(MEMORY_SIZE,
                                                      KVMEM_SYSTEM_SHAREABLE | KVMEM_SYSTEM_WRITE_SEALED);
    memory_fill(region, 1);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_SHARE_READ_ONLY", kvmem_share_create_region, region, NULL);
    parcel parcel = parcel_of_region(region, &to_be_read);
    CHECK(!can_be_written_again(&parcel));
    parcel_close(&parcel);
}

#ifndef KVMEM_TEST_SHARE_GPU
/* Opens a descriptor again for writing as another user. Returns 0 or the errno. */
static int reopen_as_another_user(int fd) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (setgid(NOBODY_UID) != 0 || setuid(NOBODY_UID) != 0) _exit(255);
        _exit(reopen_fd(fd, O_RDWR) >= 0 ? 0 : errno);
    }
    const int state = child_end(child);
    CHECK(WIFEXITED(state));
    return WEXITSTATUS(state);
}

/* The kernel allows every user that may write a file to open its descriptor again. Only the owner may be able
   to. */
TEST_EACH_KIND(no_other_user_opens_a_descriptor_again_for_writing) {
    OPENED(offer, fixture, kind, &to_be_read);
    struct stat file;
    CHECK_EQ(fstat(fixture.parcel.fds[1], &file), 0);
    CHECK_EQ(file.st_mode & 0077, 0);
    CHECK_EQ(file.st_uid, geteuid());
    if (can_test_other_users("another user that opens a descriptor again"))
        CHECK_EQ(reopen_as_another_user(fixture.parcel.fds[1]), EACCES);
}
#endif

#ifdef KVMEM_TEST_SHARE_GPU
static bool gpu_locks_read_only(void) {
    int value = 0;
    const CUdevice_attribute attribute = CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
    return driver_get()->cuDeviceGetAttribute(&value, attribute, 0) == CUDA_SUCCESS && value != 0;
}

/* The GPU reads the memory in place, and its bytes are those of the seed. */
static void check_on_gpu(const kvmem_region *locked, uint32_t seed) {
    OWNED(kvmem_region) copy = memory_create(MEMORY_DEVICE, MEMORY_SIZE, NULL);
    enter_device(0);
    CU(cuMemcpyHtoD_v2(region_info(copy).address, (const void *)(uintptr_t)region_info(locked).address,
                       MEMORY_SIZE));
    CU(cuCtxSynchronize());
    leave_device(0);
    memory_check(copy, seed);
}

/* With KVMEM_OPEN_PIN the memory is page-locked read-only if the GPU supports it; otherwise opening fails
   with the reason. */
static void lock_to_read(memory_kind kind, const kvmem_share_options *options, uint64_t flags) {
    OPENED(offer, fixture, kind, options);
    if (!gpu_locks_read_only()) {
        refuse_parcel(&fixture.parcel, KVMEM_OPEN_PIN | flags, KVMEM_STATUS_UNSUPPORTED,
                      "READ_ONLY_HOST_REGISTER_SUPPORTED");
        return;
    }
    OWNED(kvmem_region) locked = open_parcel(&fixture.parcel, KVMEM_OPEN_PIN | flags);
    const kvmem_region_info info = region_info(locked);
    CHECK_EQ(info.tier, KVMEM_TIER_PINNED);
    CHECK(info.flags & KVMEM_REGION_READ_ONLY);
    memory_check(locked, 1);
    check_on_gpu(locked, 1);
}

TEST(read_only_memory_is_page_locked_if_the_gpu_can) {
    lock_to_read(MEMORY_PINNED, &to_be_read, 0);
    lock_to_read(MEMORY_PINNED, NULL, KVMEM_OPEN_READ_ONLY);
    lock_to_read(MEMORY_SYSTEM, &to_be_read, 0);
}

/* Opened first plain, then page-locked: a plain mapping is not reused for a page-locked one, but a
   page-locked one is reused for a plain one. */
TEST(a_plain_mapping_is_not_used_as_page_locked) {
    OPENED(offer, fixture, MEMORY_PINNED, NULL);
    OWNED(kvmem_region) plain = open_parcel(&fixture.parcel, 0);
    CHECK_EQ(region_info(plain).tier, KVMEM_TIER_SYSTEM);
    CHECK_EQ(region_info(plain).device, -1);
    OWNED(kvmem_region) locked = open_parcel(&fixture.parcel, KVMEM_OPEN_PIN);
    CHECK_EQ(region_info(locked).tier, KVMEM_TIER_PINNED);
    CHECK_EQ(region_info(locked).device, 0);
    memory_fill(locked, 2);
    memory_check(plain, 2);
    OWNED(kvmem_region) again = open_parcel(&fixture.parcel, KVMEM_OPEN_PIN);
    CHECK_EQ(region_info(again).address, region_info(locked).address);
    CALL(kvmem_region_destroy(plain));
    plain = open_parcel(&fixture.parcel, 0);
    CHECK_EQ(region_info(plain).address, region_info(locked).address);
}

/* The driver can copy to and from it like memory that was page-locked in this process. */
TEST(the_driver_copies_page_locked_memory) {
    OPENED(offer, fixture, MEMORY_PINNED, NULL);
    OWNED(kvmem_region) locked = open_parcel(&fixture.parcel, KVMEM_OPEN_PIN);
    unsigned type = 0;
    const uint64_t address = region_info(locked).address;
    CU_ON(0, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK_EQ(type, CU_MEMORYTYPE_HOST);
}
#endif
