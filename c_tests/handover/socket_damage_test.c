// SPDX-License-Identifier: Apache-2.0
// Shares that were damaged or forged in transit: each fails, and leaves no file descriptor open.
#include "sample.h"
#include "wire.h"

static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};

typedef struct fixture {
    sample sample;
    wire sent;
    size_t files;
} fixture;

static void fixture_open(fixture *fixture) {
    sample_open(&fixture->sample);
    fixture->sent = wire_capture(fixture->sample.share);
    fixture->files = count_open_files();
}

static void fixture_close(fixture *fixture) {
    CHECK_EQ(count_open_files(), fixture->files);
    wire_close(&fixture->sent);
    sample_close(&fixture->sample);
}

/* Receives the first `size` bytes of a message from a sender that then closes its end. */
static kvmem_status receive_part(int kind, const wire *message, size_t size, size_t num_fds) {
    OPENED(socket_pair, ends, kind);
    if (size > 0) wire_send(ends.fds[0], message, size, num_fds);
    socket_pair_end(&ends, 0);
    kvmem_share *share = (kvmem_share *)&ends;
    const kvmem_status status = kvmem_share_receive(ends.fds[1], PATIENCE, &share, ERR);
    CHECK((share != NULL) == (status == KVMEM_STATUS_OK));
    kvmem_share_destroy(share);
    socket_pair_end(&ends, 1);
    return status;
}

static void expect_of(int kind, const wire *message, size_t num_fds, kvmem_status expected,
                      const char *what) {
    const kvmem_status status = receive_part(kind, message, message->size, num_fds);
    if (status != expected)
        FAIL("%s: expected %s, got %s: %s", what, kvmem_status_name(expected), kvmem_status_name(status),
             test_last_message());
}

TEST(an_unchanged_message_is_accepted) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < NUM(kinds); i++) {
        CLEANUP(wire_free_copy) wire copy = wire_copy(&fixture.sent);
        expect_of(kinds[i], &copy, copy.num_fds, KVMEM_STATUS_OK, "unchanged");
        wire_seal(&copy); /* the checksums are computed as docs/share-transport.md says */
        expect_of(kinds[i], &copy, copy.num_fds, KVMEM_STATUS_OK, "sealed again");
    }
}

TEST(every_changed_byte_is_detected) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < NUM(kinds); i++) {
        for (size_t place = 0; place < fixture.sent.size; place++) {
            CLEANUP(wire_free_copy) wire copy = wire_copy(&fixture.sent);
            copy.bytes[place] ^= (unsigned char)(1u << place % 8);
            expect_of(kinds[i], &copy, copy.num_fds, KVMEM_STATUS_CORRUPT, "a changed byte");
        }
    }
}

TEST(a_message_truncated_at_any_length_fails) {
    OPENED(fixture, fixture);
    const wire *sent = &fixture.sent;
    for (size_t size = 0; size < sent->size; size++) {
        CHECK_EQ(receive_part(SOCK_STREAM, sent, size, sent->num_fds), KVMEM_STATUS_PEER_LOST);
        /* An empty packet looks like the end of the stream. */
        CHECK_EQ(receive_part(SOCK_SEQPACKET, sent, size, sent->num_fds),
                 size == 0 ? KVMEM_STATUS_PEER_LOST : KVMEM_STATUS_CORRUPT);
    }
}

/* One changed header field, with a matching checksum. */
static const struct header_change {
    const char *what;
    size_t field;
    size_t size;
    uint32_t value;
    kvmem_status status;
} lies[] = {
    {"version 2", WIRE_VERSION, 2, 2, KVMEM_STATUS_VERSION_MISMATCH},
    {"version 0", WIRE_VERSION, 2, 0, KVMEM_STATUS_VERSION_MISMATCH},
    {"no kind", WIRE_KIND, 2, 0, KVMEM_STATUS_CORRUPT},
    {"a request", WIRE_KIND, 2, 2, KVMEM_STATUS_CORRUPT},
    {"a refusal", WIRE_KIND, 2, 3, KVMEM_STATUS_CORRUPT},
    {"an unknown kind", WIRE_KIND, 2, 4, KVMEM_STATUS_CORRUPT},
    {"4 GiB", WIRE_TOTAL_BYTES, 4, UINT32_MAX, KVMEM_STATUS_CORRUPT},
    {"a byte over 64 MiB", WIRE_TOTAL_BYTES, 4, (64 << 20) + 1, KVMEM_STATUS_CORRUPT},
    {"fewer bytes than are sent", WIRE_TOTAL_BYTES, 4, 1, KVMEM_STATUS_CORRUPT},
    {"more bytes than are sent", WIRE_TOTAL_BYTES, 4, 1 << 20, KVMEM_STATUS_PEER_LOST},
    {"countless files", WIRE_TOTAL_FDS, 4, UINT32_MAX, KVMEM_STATUS_CORRUPT},
    {"a file over 65536", WIRE_TOTAL_FDS, 4, 65537, KVMEM_STATUS_CORRUPT},
    {"fewer files than are sent", WIRE_TOTAL_FDS, 4, 1, KVMEM_STATUS_CORRUPT},
    {"more files than are sent", WIRE_TOTAL_FDS, 4, 3, KVMEM_STATUS_PEER_LOST},
    {"the second message", WIRE_NUMBER, 4, 1, KVMEM_STATUS_CORRUPT},
    {"a message too large", WIRE_BYTES, 4, 32769, KVMEM_STATUS_CORRUPT},
    {"more files than a message carries", WIRE_FDS, 4, 254, KVMEM_STATUS_CORRUPT},
    {"no files with the message", WIRE_FDS, 4, 0, KVMEM_STATUS_CORRUPT},
};

TEST(wrong_header_fields_are_detected) {
    OPENED(fixture, fixture);
    for (size_t i = 0; i < NUM(kinds); i++) {
        for (size_t j = 0; j < NUM(lies); j++) {
            CLEANUP(wire_free_copy) wire copy = wire_copy(&fixture.sent);
            wire_put(copy.bytes + lies[j].field, lies[j].value, lies[j].size);
            wire_seal(&copy);
            expect_of(kinds[i], &copy, copy.num_fds, lies[j].status, lies[j].what);
        }
    }
}

/* The counts are within the limits, so the receiver waits for the rest until its timeout. */
TEST(missing_bytes_time_out) {
    OPENED(fixture, fixture);
    CLEANUP(wire_free_copy) wire copy = wire_copy(&fixture.sent);
    wire_put(copy.bytes + WIRE_TOTAL_BYTES, 64 << 20, 4);
    wire_seal(&copy);
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(socket_pair, ends, kinds[i]);
        wire_send(ends.fds[0], &copy, copy.size, copy.num_fds);
        REFUSE(KVMEM_STATUS_TIMED_OUT, "close the socket", kvmem_share_receive, ends.fds[1],
               MILLISECONDS(10));
    }
}

/* The sample has two files: its control block and its memory. */
TEST(a_wrong_number_of_files_is_corrupt) {
    OPENED(fixture, fixture);
    CLEANUP(wire_free_copy) wire copy = wire_copy(&fixture.sent);
    CHECK_EQ(copy.num_fds, 2);
    for (size_t i = 2; i < WIRE_MAX_FDS; i++) copy.fds[i] = copy.fds[i % 2];
    static const size_t counts[] = {0, 1, 3, WIRE_MAX_FDS};
    for (size_t i = 0; i < NUM(kinds); i++) {
        for (size_t j = 0; j < NUM(counts); j++) {
            expect_of(kinds[i], &copy, counts[j], KVMEM_STATUS_CORRUPT, "not as the header says");
            CLEANUP(wire_free_copy) wire forged = wire_copy(&copy);
            wire_put(forged.bytes + WIRE_TOTAL_FDS, (uint32_t)counts[j], 4);
            wire_put(forged.bytes + WIRE_FDS, (uint32_t)counts[j], 4);
            wire_seal(&forged);
            expect_of(kinds[i], &forged, counts[j], KVMEM_STATUS_CORRUPT, "not as the share says");
        }
    }
}

/* A well-formed message whose content is not a share. */
TEST(invalid_content_in_a_valid_message_is_corrupt) {
    OPENED(fixture, fixture);
    unsigned seed = 7;
    for (int round = 0; round < 200; round++) {
        CLEANUP(wire_free_copy) wire copy = wire_copy(&fixture.sent);
        const size_t from = WIRE_HEADER + (round % 2 == 0 ? 0 : 20);
        for (size_t place = from; place < copy.size; place++)
            copy.bytes[place] = (unsigned char)rand_r(&seed);
        wire_seal(&copy);
        expect_of(kinds[round / 2 % 2], &copy, copy.num_fds, KVMEM_STATUS_CORRUPT, "rubbish");
    }
}
