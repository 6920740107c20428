// SPDX-License-Identifier: Apache-2.0
// Which pairs or tokens differ after a run that has compared them, and the checksums that a run returns.
#include "flight.h"
#include "harness.h"

#include <sys/mman.h>

#define NUM_BLOCKS 16
#define TOKENS 4
#define PAIRS 6

/* In no order, so that the order of the pairs is not that of the blocks. */
static const kvmem_block_pair pairs[PAIRS] = {{9, 3}, {2, 15}, {14, 0}, {5, 7}, {0, 11}, {7, 1}};
static const uint32_t sources[PAIRS] = {9, 2, 14, 5, 0, 7}, destinations[PAIRS] = {3, 15, 0, 7, 11, 1};

static kvmem_layout_config config_of(void) {
    return OPTIONS(kvmem_layout_config, it.num_blocks = NUM_BLOCKS, it.num_layers = 2, it.outer_dim = 2,
                   it.page_size = TOKENS, it.num_heads = 2, it.inner_dim = 16, it.dtype_width = 2, it.order = "L/BONHC");
}

/* A destination that can't be right: both layers are the same memory, mapped twice. A token arrives only if it
   is the same in both layers of the source. */
typedef struct aliased {
    void *mappings[2];
    size_t size;
    kvmem_region *regions[2];
    kvmem_layout *layout;
} aliased;

static void aliased_open(aliased *aliased) {
    const kvmem_layout_config config = config_of();
    aliased->size = kv_region_size(&config);
    const int protection = PROT_READ | PROT_WRITE;
    for (int layer = 0; layer < 2; layer++) {
        aliased->mappings[layer] = mmap(NULL, aliased->size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(aliased->mappings[layer] != MAP_FAILED);
        aliased->regions[layer] = region_adopt(aliased->mappings[layer], aliased->size);
    }
    aliased->layout = regions_lay_out(&config, aliased->regions, 2, NULL);
    /* Only now: a layout over memory that is mapped twice is refused. */
    const int fd = memfd_create("aliased", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, (off_t)aliased->size), 0);
    for (int layer = 0; layer < 2; layer++)
        CHECK(mmap(aliased->mappings[layer], aliased->size, protection, MAP_SHARED | MAP_FIXED, fd, 0) !=
              MAP_FAILED);
    close(fd);
}

static void aliased_close(aliased *aliased) {
    DESTROYED(kvmem_layout, aliased->layout);
    for (int layer = 0; layer < 2; layer++) {
        DESTROYED(kvmem_region, aliased->regions[layer]);
        munmap(aliased->mappings[layer], aliased->size);
    }
}

/* Makes both layers of a token of a block the same, or different. */
static void set_token(const kv_side *source, uint32_t block, uint32_t token, bool is_right) {
    const size_t size = kv_piece_size(&source->config) / TOKENS;
    for (uint64_t outer = 0; outer < 2; outer++) {
        unsigned char *first = kv_side_piece(source, block, 0, outer) + token * size;
        unsigned char *second = kv_side_piece(source, block, 1, outer) + token * size;
        memcpy(second, first, size);
        if (!is_right) second[size - 1] ^= 0x40; /* of the last head */
    }
}

/* The entries whose bit is set are to differ. */
static size_t indices_of(uint64_t bits, uint64_t *indices) {
    size_t count = 0;
    for (uint64_t i = 0; i < 64; i++)
        if (bits >> i & 1) indices[count++] = i;
    return count;
}

static void expect_bits(const kvmem_transfer *transfer, uint64_t bits) {
    uint64_t expected[64];
    const size_t count = indices_of(bits, expected);
    kv_expect_mismatches(transfer, expected, count);
}

/* None; the first; one in the middle; the last; several; all. */
static const uint64_t cases[] = {0, 1, 4, 32, 0x2D, 0x3F, 0x21, 0};

/* To the blocks of the same ids, if it is another layout that blocks are moved from. */
static void copy_sources(const kv_side *source, const kvmem_layout *filled) {
    kvmem_block_pair same[PAIRS];
    for (uint32_t pair = 0; pair < PAIRS; pair++)
        same[pair] = (kvmem_block_pair){sources[pair], sources[pair]};
    const kv_move move = {same, PAIRS, 0, 0, 2};
    if (filled != NULL) kv_run(source->layout, filled, &move);
}

static void check_pairs(const kvmem_layout *from, const kv_side *source, const kvmem_layout *filled, kv_job job) {
    OPENED(aliased, aliased);
    job.run.pairs = pairs;
    job.run.num_pairs = PAIRS;
    OWN(kvmem_transfer, transfer, kv_prepare, from, aliased.layout, &job);
    for (size_t i = 0; i < NUM(cases); i++) {
        for (uint32_t pair = 0; pair < PAIRS; pair++)
            for (uint32_t token = 0; token < TOKENS; token++)
                set_token(source, sources[pair], token,
                          token != pair % TOKENS || (cases[i] >> pair & 1) == 0);
        copy_sources(source, filled);
        const int number = __builtin_popcountll(cases[i]);
        const char *const part = TEXT("%d of %d moved blocks are corrupt: the first is pair", number, PAIRS);
        RUN_ENDS(number == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_CORRUPT, number == 0 ? "" : part, transfer);
        expect_bits(transfer, cases[i]);
    }
}

TEST(pairs_in_memory_that_differ_are_listed) {
    OPENED(kv_side, source, REF(config_of()), NULL, 1);
    check_pairs(source.layout, &source, NULL, JOB(it.run.flags = KVMEM_SUBMIT_VERIFY));
    /* Both heads, and the last one, in which the bytes differ. */
    check_pairs(source.layout, &source, NULL,
                JOB(it.run.flags = KVMEM_SUBMIT_VERIFY, it.transfer.num_heads = 2));
    check_pairs(source.layout, &source, NULL,
                JOB(it.run.flags = KVMEM_SUBMIT_VERIFY, it.transfer.source_head = 1,
                    it.transfer.destination_head = 1, it.transfer.num_heads = 1));
}

TEST(pairs_of_a_file_that_differ_are_listed) {
    OPENED(kv_side, source, REF(config_of()), NULL, 1);
    OWNED(kvmem_layout) file = temporary_disk_layout(REF(config_of()), NULL, KVMEM_DISK_BUFFERED);
    check_pairs(file, &source, file,
                JOB(it.run.flags = KVMEM_SUBMIT_VERIFY, it.transfer.method = KVMEM_METHOD_PREAD));
    check_pairs(file, &source, file,
                JOB(it.run.flags = KVMEM_SUBMIT_VERIFY, it.transfer.source_head = 1,
                    it.transfer.destination_head = 1, it.transfer.num_heads = 1));
}

/* Tokens 3, 5, 7, ... of the source. */
#define MOVED 9
static const uint64_t token_cases[] = {0, 1, 0x10, 0x100, 0x155, 0x1FF};

static void check_tokens(const kvmem_layout *from, const kv_side *source, const kvmem_layout *filled) {
    const kvmem_block_table source_table = {sources, PAIRS, 3, 2};
    const kvmem_block_table destination_table = {destinations, PAIRS, 1, 1};
    OPENED(aliased, aliased);
    OWN(kvmem_transfer, transfer, kv_prepare, from, aliased.layout,
        REF(JOB(it.run.flags = KVMEM_SUBMIT_VERIFY, it.run.source_table = &source_table,
                it.run.destination_table = &destination_table, it.run.num_tokens = MOVED)));
    for (size_t i = 0; i < NUM(token_cases); i++) {
        for (uint32_t token = 0; token < MOVED; token++) {
            const uint32_t at = 3 + 2 * token;
            set_token(source, sources[at / TOKENS], at % TOKENS, (token_cases[i] >> token & 1) == 0);
        }
        copy_sources(source, filled);
        const int number = __builtin_popcountll(token_cases[i]);
        const char *const part = TEXT("%d of %d moved tokens are corrupt: the first is token", number, MOVED);
        RUN_ENDS(number == 0 ? KVMEM_STATUS_OK : KVMEM_STATUS_CORRUPT, number == 0 ? "" : part, transfer);
        expect_bits(transfer, token_cases[i]);
    }
}

TEST(tokens_that_differ_are_listed) {
    OPENED(kv_side, source, REF(config_of()), NULL, 1);
    check_tokens(source.layout, &source, NULL);
    OWNED(kvmem_layout) file = temporary_disk_layout(REF(config_of()), NULL, KVMEM_DISK_BUFFERED);
    check_tokens(file, &source, file);
}

static void checksums_of(const kvmem_layout *layout, const uint32_t *blocks, uint32_t *checksums) {
    EXPECT_OK(kvmem_layout_checksum(layout, blocks, PAIRS, KVMEM_TIMEOUT_FOREVER, checksums, ERR));
}

static void expect_checksums(const kvmem_transfer *transfer, const uint32_t *expected) {
    uint32_t found[PAIRS + 1] = {0};
    GET(size_t, count, kvmem_transfer_get_checksums, transfer, found, NUM(found));
    CHECK_EQ(count, PAIRS);
    CHECK_BYTES(found, expected, PAIRS * sizeof(*found));
    CHECK_EQ(found[PAIRS], 0);
    found[1] = 7;
    EXPECT_OK(kvmem_transfer_get_checksums(transfer, found, 1, &count, ERR));
    CHECK(count == PAIRS && found[0] == expected[0] && found[1] == 7);
}

static void expect_no_checksums(const kvmem_transfer *transfer) {
    size_t count = 3;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "KVMEM_SUBMIT_CHECKSUM",
                   kvmem_transfer_get_checksums(transfer, NULL, 0, &count, ERR));
    CHECK_EQ(count, 3);
}

static kvmem_submit_options step_of(uint64_t flags, const uint32_t *checksums) {
    return OPTIONS(kvmem_submit_options, it.pairs = pairs, it.num_pairs = PAIRS, it.flags = flags,
                   it.checksums = checksums);
}

/* One transfer, whose runs have other options: each has its own findings. */
TEST(the_checks_belong_to_the_run) {
    OPENED(kv_side, source, REF(config_of()), NULL, 1);
    OPENED(kv_side, destination, REF(config_of()), NULL, 2);
    uint32_t right[PAIRS], wrong[PAIRS];
    checksums_of(source.layout, sources, right);
    memcpy(wrong, right, sizeof(wrong));
    wrong[0] ^= 1;
    wrong[5] ^= 1;
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source.layout, destination.layout, NULL);
    size_t count = 0;
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "submit",
                   kvmem_transfer_get_mismatches(transfer, NULL, 0, &count, ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_STATE, "submit",
                   kvmem_transfer_get_checksums(transfer, NULL, 0, &count, ERR));
    for (int round = 0; round < 2; round++) {
        RUN_WITH(transfer, REF(step_of(KVMEM_SUBMIT_VERIFY, NULL)));
        expect_bits(transfer, 0);
        expect_no_checksums(transfer);
        RUN_WITH(transfer, REF(step_of(KVMEM_SUBMIT_CHECKSUM, NULL)));
        expect_checksums(transfer, right);
        RUN_WITH(transfer, REF(step_of(KVMEM_SUBMIT_VERIFY | KVMEM_SUBMIT_CHECKSUM, NULL)));
        expect_checksums(transfer, right);
        EXPECT_OK(kvmem_transfer_submit(transfer, REF(step_of(KVMEM_SUBMIT_CHECKSUM, wrong)), ERR));
        EXPECT(KVMEM_STATUS_CORRUPT, kvmem_transfer_wait(transfer, PATIENCE, ERR));
        expect_bits(transfer, 0x21);
        expect_checksums(transfer, right); /* those of the destination */
        /* Refused: the findings remain those of the last run. */
        EXPECT(KVMEM_STATUS_INVALID_ARGUMENT,
               kvmem_transfer_submit(transfer, REF(step_of(KVMEM_SUBMIT_VERIFY, right)), ERR));
        EXPECT_OK(kvmem_transfer_prepare(transfer, REF(step_of(0, NULL)), ERR));
        expect_bits(transfer, 0x21);
        expect_checksums(transfer, right);
        RUN(transfer);
        expect_bits(transfer, 0);
        expect_no_checksums(transfer);
        RUN_WITH(transfer, REF(step_of(0, right)));
        expect_bits(transfer, 0);
    }
}

/* The side that is read for checksums alone: a file is the other one. */
TEST(checksums_of_blocks_from_and_to_a_file_are_returned) {
    OPENED(kv_side, host, REF(config_of()), NULL, 1);
    OPENED(kv_side, back, REF(config_of()), NULL, 2);
    OWNED(kvmem_layout) file = temporary_disk_layout(REF(config_of()), NULL, KVMEM_DISK_BUFFERED);
    uint32_t expected[PAIRS];
    checksums_of(host.layout, sources, expected);
    OWN(kvmem_transfer, offload, kvmem_transfer_create, host.layout, file, NULL);
    RUN_WITH(offload, REF(step_of(KVMEM_SUBMIT_CHECKSUM, NULL)));
    expect_checksums(offload, expected);
    kvmem_block_pair same[PAIRS];
    for (uint32_t i = 0; i < PAIRS; i++) same[i] = (kvmem_block_pair){destinations[i], destinations[i]};
    OWN(kvmem_transfer, restore, kvmem_transfer_create, file, back.layout, NULL);
    RUN_WITH(restore, REF(OPTIONS(kvmem_submit_options, it.pairs = same, it.num_pairs = PAIRS,
                                  it.checksums = expected, it.flags = KVMEM_SUBMIT_CHECKSUM)));
    expect_checksums(restore, expected);
}

/* Of the layers that are moved, which can be reported one by one. */
TEST(a_run_by_layer_returns_checksums) {
    OPENED(kv_side, source, REF(config_of()), NULL, 1);
    OPENED(kv_side, destination, REF(config_of()), NULL, 2);
    uint32_t expected[PAIRS];
    checksums_of(source.layout, sources, expected);
    OWN(kvmem_transfer, transfer, kvmem_transfer_create, source.layout, destination.layout,
        REF(OPTIONS(kvmem_transfer_options, it.flags = KVMEM_TRANSFER_BY_LAYER)));
    RUN_WITH(transfer, REF(step_of(KVMEM_SUBMIT_CHECKSUM, NULL)));
    expect_checksums(transfer, expected);
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "by layer",
                   kvmem_transfer_submit(transfer, REF(step_of(KVMEM_SUBMIT_VERIFY, NULL)), ERR));
    EXPECT_MESSAGE(KVMEM_STATUS_UNSUPPORTED, "by layer",
                   kvmem_transfer_submit(transfer, REF(step_of(0, expected)), ERR));
}

TEST(checksums_of_parts_of_blocks_are_refused) {
    const kvmem_block_table source_table = {sources, PAIRS, 0, 1};
    const kvmem_block_table destination_table = {destinations, PAIRS, 1, 1};
    OPENED(kv_side, source, REF(config_of()), NULL, 1);
    OPENED(kv_side, destination, REF(config_of()), NULL, 2);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "whole blocks", kv_prepare, source.layout, destination.layout,
           REF(JOB(it.run.flags = KVMEM_SUBMIT_CHECKSUM, it.run.source_table = &source_table,
                   it.run.destination_table = &destination_table, it.run.num_tokens = 5)));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "whole blocks", kv_prepare, source.layout, destination.layout,
           REF(JOB(it.run.flags = KVMEM_SUBMIT_CHECKSUM, it.run.pairs = pairs, it.run.num_pairs = PAIRS,
                   it.transfer.num_heads = 1)));
}

/* While a run is in flight, and after its cancellation and its deadline, there are no findings. */
TEST(a_run_without_an_end_of_its_own_has_no_findings) {
    static const kvmem_block_pair some[] = {{3, 5}, {8, 2}};
    static const kv_move move = {some, NUM(some), 0, 0, 4};
    static const uint32_t wrong[NUM(some)] = {1, 2};
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        OPENED(flight, flight, &move, 0);
        const kvmem_submit_options checked =
            OPTIONS(kvmem_submit_options, it.pairs = some, it.num_pairs = NUM(some),
                    it.user_data = FLIGHT_USER_DATA, it.flags = KVMEM_SUBMIT_CHECKSUM, it.checksums = wrong);
        EXPECT_OK(kvmem_transfer_submit(flight.transfer, &checked, ERR));
        flight_expect_end(&flight, &move, FLIGHT_USER_DATA, KVMEM_STATUS_CORRUPT);
        expect_bits(flight.transfer, 3);
        const kvmem_submit_options late = WITH(checked, it.run_timeout_ns = cancelled ? 0 : MILLISECONDS(1));
        EXPECT_OK(kvmem_transfer_prepare(flight.transfer, &late, ERR));
        if (cancelled) {
            flight_hold(&flight, 3, 0);
        } else {
            gate_close(kv_side_piece(&flight.source, 3, 0, 0), 4096);
            EXPECT_OK(kvmem_transfer_submit(flight.transfer, NULL, ERR));
        }
        size_t count = 0;
        if (cancelled) {
            EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "in flight",
                           kvmem_transfer_get_mismatches(flight.transfer, NULL, 0, &count, ERR));
            EXPECT_MESSAGE(KVMEM_STATUS_BUSY, "in flight",
                           kvmem_transfer_get_checksums(flight.transfer, NULL, 0, &count, ERR));
            EXPECT_OK(kvmem_transfer_cancel(flight.transfer, ERR));
            gate_open();
        }
        const kvmem_status status = cancelled ? KVMEM_STATUS_CANCELLED : KVMEM_STATUS_TIMED_OUT;
        flight_expect_end(&flight, &move, FLIGHT_USER_DATA, status);
        EXPECT(status, kvmem_transfer_get_mismatches(flight.transfer, NULL, 0, &count, ERR));
        EXPECT(status, kvmem_transfer_get_checksums(flight.transfer, NULL, 0, &count, ERR));
        if (!cancelled) gate_open();
        while (kvmem_transfer_submit(flight.transfer, &checked, ERR) == KVMEM_STATUS_BUSY) sched_yield();
        flight_expect_end(&flight, &move, FLIGHT_USER_DATA, KVMEM_STATUS_CORRUPT);
        expect_bits(flight.transfer, 3);
    }
}
