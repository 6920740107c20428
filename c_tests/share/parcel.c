// SPDX-License-Identifier: Apache-2.0
// Serializes shares and reads them, with the functions for engines that have their own channel.
#include "parcel.h"

enum { BYTES = 100, COUNT };

parcel parcel_of(const kvmem_share *share) {
    const kvmem_share_info info = share_info(share);
    parcel taken = {{test_allocate(info.size), info.size},
                    test_allocate(info.num_fds * sizeof(int)),
                    info.num_fds};
    memcpy(taken.bytes.data, info.data, info.size);
    CHECK_EQ(info.fds == NULL, info.num_fds == 0);
    for (size_t i = 0; i < taken.num_fds; i++) {
        CHECK_EQ(fcntl(info.fds[i], F_GETFD), FD_CLOEXEC);
        taken.fds[i] = fcntl(info.fds[i], F_DUPFD_CLOEXEC, 0);
        CHECK(taken.fds[i] >= 0);
    }
    return taken;
}

parcel parcel_copy(const parcel *original) {
    parcel copy = {{test_allocate(original->bytes.size), original->bytes.size},
                   test_allocate(original->num_fds * sizeof(int)),
                   original->num_fds};
    memcpy(copy.bytes.data, original->bytes.data, copy.bytes.size);
    for (size_t i = 0; i < copy.num_fds; i++) {
        copy.fds[i] = fcntl(original->fds[i], F_DUPFD_CLOEXEC, 0);
        CHECK(copy.fds[i] >= 0);
    }
    return copy;
}

void parcel_close(parcel *parcel) {
    for (size_t i = 0; i < parcel->num_fds; i++) close(parcel->fds[i]);
    free(parcel->fds);
    free(parcel->bytes.data);
    *parcel = (struct parcel){{NULL, 0}, NULL, 0};
}

void parcel_send(int socket, const parcel *parcel) {
    frame_send(socket, BYTES, parcel->bytes.data, parcel->bytes.size);
    frame_send(socket, COUNT, &parcel->num_fds, sizeof(parcel->num_fds));
    send_fds(socket, parcel->fds, parcel->num_fds);
}

parcel parcel_receive(int socket) {
    parcel received = {.bytes = frame_expect(socket, BYTES)};
    frame_expect_into(socket, COUNT, &received.num_fds, sizeof(received.num_fds));
    received.fds = test_allocate(received.num_fds * sizeof(int));
    receive_fds(socket, received.fds, received.num_fds);
    return received;
}

kvmem_status parcel_read(const parcel *parcel, kvmem_share **share) {
    return kvmem_share_create_received(parcel->bytes.data, parcel->bytes.size, parcel->fds, parcel->num_fds,
                                       share, ERR);
}

kvmem_share *parcel_share(const parcel *parcel) {
    kvmem_share *share = NULL;
    EXPECT_OK(parcel_read(parcel, &share));
    return share;
}
