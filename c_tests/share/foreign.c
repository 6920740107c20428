// SPDX-License-Identifier: Apache-2.0
// Creates memory files.
#include "foreign.h"

#include "forged.h"

static int sealed(uint64_t size, unsigned flags) {
    const int fd = memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, (off_t)size), 0);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    return fd;
}

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26) /* from linux/memfd.h */
#endif

int foreign_memory(uint64_t size) { return sealed(size, 0); }

int foreign_huge_memory(uint64_t size) { return sealed(size, MFD_HUGETLB | MFD_HUGE_2MB); }

/* The first fields of a control block, see docs/share-manifest.md. */
typedef struct control_head {
    char magic[8];
    uint32_t version;
    uint32_t extents;
    unsigned char id[16];
    uint64_t generation;
    uint64_t closed;
    uint64_t reserved[2];
} control_head;
_Static_assert(sizeof(control_head) == 64, "the head of a control block");

int foreign_control(const parcel *parcel, uint32_t version, uint32_t extents, uint64_t size) {
    control_head head = {
        .magic = {'K', 'V', 'M', 'E', 'M', 'C', 'T', 'L'},
        .version = version,
        .extents = extents,
    };
    memcpy(head.id, forged_bytes(parcel, "id", 16), 16);
    const int fd = foreign_memory(size);
    if (size >= sizeof(head)) CHECK_EQ(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    return fd;
}

int foreign_reopen(int fd, int flags) {
    const int again = reopen_fd(fd, flags);
    CHECK(again >= 0);
    close(fd);
    return again;
}

void foreign_put(parcel *parcel, size_t index, int fd) {
    CHECK(fd >= 0);
    CHECK(index < parcel->num_fds);
    close(parcel->fds[index]);
    parcel->fds[index] = fd;
}
