// SPDX-License-Identifier: Apache-2.0
// An engine's memory files: adopted by file descriptor and offset, and shared. Files that do not match the
// options fail.
#include "foreign.h"
#include "offer.h"
#include "kinds.h"
#include "opened.h"
#include "scarce_threads.h"

HOLDER_ROLE

#define PAGE UINT64_C(4096)
#define OFFSET (3 * PAGE)
#define FILE_SIZE (MEMORY_SIZE + 2 * OFFSET)

/* A memory file, which the engine has mapped as a whole. */
typedef struct engine_file {
    int fd;
    unsigned char *bytes;
} engine_file;

static engine_file engine_file_of(int fd) {
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, FILE_SIZE), 0);
    unsigned char *bytes = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(bytes != MAP_FAILED);
    return (engine_file){fd, bytes};
}

static engine_file engine_file_open(void) {
    return engine_file_of(memfd_create("engine", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

static void engine_file_close(const engine_file *file) {
    CHECK_EQ(munmap(file->bytes, FILE_SIZE), 0);
    CHECK_EQ(close(file->fd), 0);
}

/* The part from OFFSET on; `address` is the engine's mapping of it, or NULL. */
static kvmem_adopt_memfd_options part_of(const engine_file *file, void *address) {
    return OPTIONS(kvmem_adopt_memfd_options, it.fd = file->fd, it.offset = OFFSET, it.size = MEMORY_SIZE,
                   it.address = address);
}

static kvmem_region *adopt(const kvmem_adopt_memfd_options *options) {
    return MADE(kvmem_region, kvmem_region_adopt_memfd, options);
}

static void refuse(const kvmem_adopt_memfd_options *options, kvmem_status status, const char *part) {
    REFUSE(status, part, kvmem_region_adopt_memfd, options);
}

static parcel share(const kvmem_region *region, uint64_t flags) {
    const kvmem_share_options options = {.struct_size = sizeof(options), .flags = flags};
    OWN(kvmem_share, share, kvmem_share_create_region, region, &options);
    return parcel_of(share);
}

static bool is_sealed(const engine_file *file) { return (fcntl(file->fd, F_GET_SEALS) & F_SEAL_SHRINK) != 0; }

static kvmem_status adopt_with_options(void *options) {
    kvmem_region *region = NULL;
    return kvmem_region_adopt_memfd(options, &region, NULL);
}

/* This case and this call must be the first: any adoption, also the one within releases_count, starts the
   thread for release callbacks, which ends some time after the last adopted region is destroyed. */
TEST(an_adoption_that_cannot_start_a_thread_adds_no_seal) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.release = note_release);
    CHECK_EQ(without_new_threads(adopt_with_options, &options), KVMEM_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(releases_count(), 0);
    CHECK(!is_sealed(&file));
    CHECK_EQ(ftruncate(file.fd, FILE_SIZE - PAGE), 0);
}

/* A seal cannot be removed, so a failed call must not add one. */
TEST(a_failed_adoption_adds_no_seal) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.offset = OFFSET + 1);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "page size 4096");
    options = WITH(part_of(&file, NULL), it.size = FILE_SIZE);
    refuse(&options, KVMEM_STATUS_OUT_OF_RANGE, "ftruncate");
    options = part_of(&file, file.bytes);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "mapped from offset 0");
    static unsigned char elsewhere[MEMORY_SIZE];
    options = part_of(&file, elsewhere);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "MAP_SHARED");
    CHECK(!is_sealed(&file));
    CHECK_EQ(ftruncate(file.fd, FILE_SIZE - PAGE), 0);
}

/* Another process maps the same pages: each sees what the other writes. */
TEST(importers_have_the_same_pages) {
    for (int is_mapped_by_engine = 0; is_mapped_by_engine < 2; is_mapped_by_engine++) {
        CLEANUP(engine_file_close) engine_file file = engine_file_open();
        memset(file.bytes, 0x11, FILE_SIZE);
        const kvmem_adopt_memfd_options options = part_of(&file,
                                                         is_mapped_by_engine ? file.bytes + OFFSET : NULL);
        OWNED(kvmem_region) region = adopt(&options);
        const kvmem_region_info info = region_info(region);
        CHECK_EQ(info.tier, KVMEM_TIER_SYSTEM);
        CHECK_EQ(info.origin, KVMEM_ORIGIN_ADOPTED);
        CHECK_EQ(info.flags, KVMEM_REGION_SHAREABLE);
        CHECK_EQ(info.size, MEMORY_SIZE);
        CHECK_EQ(info.address == (uintptr_t)file.bytes + OFFSET, is_mapped_by_engine);
        memory_fill(region, 5);
        CLEANUP(parcel_close) parcel parcel = share(region, 0);
        CLEANUP(peer_finish) peer importer = holder_start();
        CHECK_EQ(holder_open(&importer, &parcel, 0), KVMEM_STATUS_OK);
        holder_check(&importer, HOLDING_OPENED, 5);
        holder_fill(&importer, HOLDING_OPENED, 6);
        memory_check(region, 6);
        CHECK_BYTES(file.bytes + OFFSET, (const void *)(uintptr_t)info.address, MEMORY_SIZE);
        CHECK_FILLED(file.bytes, 0x11, OFFSET);
        CHECK_FILLED(file.bytes + OFFSET + MEMORY_SIZE, 0x11, OFFSET);
        CHECK_EQ(region_holders(region).importers, 1);
        holder_close(&importer);
        CHECK_EQ(region_holders(region).importers, 0);
    }
}

/* The engine may close its descriptor and unmap its memory, because kvmem has its own. kvmem closes and
   unmaps both before it calls the release callback. */
TEST(the_engine_may_close_and_unmap_its_file) {
    KEEPS_FILES;
    engine_file file = engine_file_open();
    memset(file.bytes + OFFSET, 0x22, MEMORY_SIZE);
    kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.release = note_release);
    const int before = releases_count();
    kvmem_region *region = adopt(&options);
    engine_file_close(&file);
    const uint64_t address = region_info(region).address;
    CHECK_FILLED((const unsigned char *)(uintptr_t)address, 0x22, MEMORY_SIZE);
    CLEANUP(parcel_close) parcel parcel = share(region, 0);
    GET(kvmem_region *, view, kvmem_region_create_view, region, PAGE, PAGE);
    kvmem_region_destroy(region);
    CHECK_EQ(releases_count(), before);
    CHECK(is_mapped(address));
    kvmem_region_destroy(view);
    await_releases(before + 1);
    CHECK(!is_mapped(address));
}

/* Blocks move between two processes through the engine's pages. */
TEST(layouts_over_adopted_files_are_shared) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    const kvmem_adopt_memfd_options options = part_of(&file, file.bytes + OFFSET);
    OWNED(kvmem_region) region = adopt(&options);
    kvmem_layout_config config = blocks_config(&kv_kinds[0]);
    OWNED(kvmem_layout) layout = regions_lay_out(&config, &region, 1, NULL);
    CLEANUP(kv_side_close) kv_side model;
    kv_model_open(&model, &config, 3);
    blocks_write(layout, &model);
    OWN(kvmem_share, shared, kvmem_share_create_layout, layout, NULL);
    CLEANUP(parcel_close) parcel parcel = parcel_of(shared);
    CLEANUP(peer_finish) peer importer = holder_start();
    CHECK_EQ(holder_open_layout(&importer, &parcel), KVMEM_STATUS_OK);
}

/* An importer chooses its own addresses. Blocks that are aligned only because of the engine's address would
   not be aligned there. */
TEST(blocks_aligned_only_by_the_engines_address_are_not_shared) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    unsigned char *place = mmap(NULL, 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(place != MAP_FAILED);
    unsigned char *aligned = (unsigned char *)(((uintptr_t)place + 2 * MIB) / MIB * MIB);
    unsigned char *start = aligned - PAGE;
    CHECK(mmap(start, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd, OFFSET) == start);
    kvmem_adopt_memfd_options options = WITH(part_of(&file, start), it.size = 2 * MIB);
    kvmem_region *region = adopt(&options);
    GET(kvmem_region *, view, kvmem_region_create_view, region, PAGE, MIB);
    kvmem_layout_config config = WITH(kv_config(&kv_kinds[0]), it.num_blocks = 1, it.alignment = MIB);
    kvmem_layout *layout = regions_lay_out(&config, &view, 1, NULL);
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "not a multiple of the alignment 1048576", kvmem_share_create_layout,
           layout, NULL);
    kvmem_layout_destroy(layout);
    kvmem_region_destroy(view);
    kvmem_region_destroy(region);
    CHECK_EQ(munmap(place, 4 * MIB), 0);
}

static kvmem_layout *lay_out_pages(kvmem_region *region, uint32_t num_blocks) {
    const kvmem_layout_config config = OPTIONS(
        kvmem_layout_config, it.num_blocks = num_blocks, it.num_layers = 1, it.outer_dim = 1, it.page_size = 1,
        it.inner_dim = PAGE, it.dtype_width = 1, it.order = KVMEM_ORDER_FULLY_CONTIGUOUS);
    return regions_lay_out(&config, &region, 1, NULL);
}

static kvmem_layout *adopt_pages(unsigned char *address, uint32_t num_blocks) {
    OWN(kvmem_region, region, kvmem_region_adopt_host,
        REF(OPTIONS(kvmem_adopt_options, it.address = address, it.size = num_blocks * PAGE)));
    return lay_out_pages(region, num_blocks);
}

/* The destination starts at the fourth page of the source. Pairs that read and write the same page fail;
   others succeed. */
static void check_overlap(const kvmem_layout *source, const kvmem_layout *destination) {
    static const kvmem_block_pair same[] = {{4, 0}}, chain[] = {{0, 0}, {4, 1}}, apart[] = {{0, 4}, {7, 7}};
    kv_job options = JOB(it.run.pairs = same, it.run.num_pairs = NUM(same));
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kv_prepare, source, destination, &options);
    options.run.pairs = chain, options.run.num_pairs = NUM(chain);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "overlap", kv_prepare, source, destination, &options);
    options.run.pairs = apart, options.run.num_pairs = NUM(apart);
    kv_run_with(source, destination, &options);
}

/* Overlapping parts of one file at different addresses: a write to one changes the other. */
TEST(overlapping_parts_of_one_file_are_detected) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    for (size_t i = 0; i < FILE_SIZE; i++) file.bytes[i] = (unsigned char)(i / PAGE);
    const kvmem_adopt_memfd_options whole = WITH(part_of(&file, NULL), it.offset = 0);
    const kvmem_adopt_memfd_options later = WITH(part_of(&file, NULL), it.offset = 4 * PAGE);
    OWNED(kvmem_region) first = adopt(&whole);
    OWNED(kvmem_region) second = adopt(&later);
    OWN(kvmem_region, view, kvmem_region_create_view, second, 0, 8 * PAGE);
    OWNED(kvmem_layout) source = lay_out_pages(first, 8);
    OWNED(kvmem_layout) destination = lay_out_pages(view, 8);
    check_overlap(source, destination);
    CHECK_FILLED(file.bytes + 8 * PAGE, 0, PAGE);
    CHECK_FILLED(file.bytes + 11 * PAGE, 7, PAGE);
}

/* The engine has mapped one file twice, and adopts both mappings by address. */
TEST(memory_that_is_mapped_twice_is_detected) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    unsigned char *again = mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
    CHECK(again != MAP_FAILED);
    {
        OWNED(kvmem_layout) source = adopt_pages(file.bytes + PAGE, 8);
        OWNED(kvmem_layout) destination = adopt_pages(again + 5 * PAGE, 8);
        memset(file.bytes + PAGE, 7, PAGE);
        check_overlap(source, destination);
        CHECK_FILLED(file.bytes + 9 * PAGE, 7, PAGE);
    }
    CHECK_EQ(munmap(again, FILE_SIZE), 0);
}

/* If the file were truncated, access to the memory would kill the process with SIGBUS. */
TEST(an_adopted_file_is_sealed_against_truncation) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    const kvmem_adopt_memfd_options options = part_of(&file, NULL);
    OWNED(kvmem_region) region = adopt(&options);
    CHECK(is_sealed(&file));
    CHECK_EQ(ftruncate(file.fd, 0), -1);
    CHECK_EQ(ftruncate(file.fd, FILE_SIZE + MIB), 0); /* growing is allowed */
}

/* Adopts and shares a file without seals. Importers must trust its owner. */
static void share_unsealed(engine_file file, uint64_t flags) {
    kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.flags = flags);
    OWNED(kvmem_region) region = adopt(&options);
    CHECK(!is_sealed(&file));
    memory_fill(region, 8);
    CLEANUP(parcel_close) parcel parcel = share(region, 0);
    CLEANUP(peer_finish) peer importer = holder_start();
    CHECK_EQ(holder_open(&importer, &parcel, KVMEM_OPEN_TRUST_OWNER), KVMEM_STATUS_OK);
    holder_check(&importer, HOLDING_OPENED, 8);
    engine_file_close(&file);
}

TEST(a_file_without_seals_is_shared) {
    share_unsealed(engine_file_open(), KVMEM_ADOPT_KEEP_SEALS);
    share_unsealed(engine_file_of(memfd_create("engine", MFD_CLOEXEC)), 0);
    share_unsealed(engine_file_of(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)), 0);
}

TEST(a_file_without_seals_is_opened_only_with_trust_owner) {
    OPENED(offer, offer, MEMORY_PART, NULL);
    trust_owners(false);
    kvmem_region *region = open_parcel(&offer.parcel, 0);
    memory_check(region, 1);
    kvmem_region_destroy(region);
    const engine_file unsealed = engine_file_open();
    foreign_put(&offer.parcel, 1, dup(unsealed.fd));
    refuse_parcel(&offer.parcel, 0, KVMEM_STATUS_UNSUPPORTED, "can be truncated");
    refuse_parcel(&offer.parcel, KVMEM_OPEN_READ_ONLY, KVMEM_STATUS_UNSUPPORTED, "KVMEM_OPEN_TRUST_OWNER");
    region = open_parcel(&offer.parcel, KVMEM_OPEN_TRUST_OWNER);
    memset((void *)(uintptr_t)region_info(region).address, 0x33, MEMORY_SIZE);
    kvmem_region_destroy(region);
    engine_file_close(&unsealed);
    trust_owners(true);
}

/* A file that is open only for reading gives a read-only region and a read-only share. */
TEST(a_file_open_for_reading_is_adopted_read_only) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    file.fd = foreign_reopen(file.fd, O_RDONLY);
    memset(file.bytes, 0x44, FILE_SIZE);
    kvmem_adopt_memfd_options options = part_of(&file, NULL);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "KVMEM_ADOPT_READ_ONLY");
    options.flags = KVMEM_ADOPT_READ_ONLY;
    kvmem_region *region = adopt(&options);
    CHECK((region_info(region).flags & KVMEM_REGION_READ_ONLY) != 0);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_SHARE_READ_ONLY", kvmem_share_create_region, region, NULL);
    parcel parcel = share(region, KVMEM_SHARE_READ_ONLY);
    CHECK_EQ(fcntl(parcel.fds[1], F_GETFL) & O_ACCMODE, O_RDONLY);
    parcel_close(&parcel);
    kvmem_region_destroy(region);
    file.fd = foreign_reopen(file.fd, O_WRONLY);
    options = part_of(&file, NULL);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "not open for reading");
}

/* A region adopted read-only gives a read-only share, though the file is writable. */
TEST(a_region_adopted_read_only_is_shared_read_only) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    kvmem_adopt_memfd_options options = part_of(&file, file.bytes + OFFSET);
    options.flags = KVMEM_ADOPT_READ_ONLY;
    OWNED(kvmem_region) region = adopt(&options);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_ADOPT_READ_ONLY", kvmem_share_create_region, region, NULL);
}

/* The engine writes through its existing mapping. Importers cannot map the file for writing. */
TEST(a_file_sealed_against_writing_is_shared_read_only) {
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    CHECK_EQ(fcntl(file.fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    kvmem_adopt_memfd_options options = part_of(&file, NULL);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "F_SEAL_FUTURE_WRITE");
    options.address = file.bytes + OFFSET;
    OWNED(kvmem_region) region = adopt(&options);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "F_SEAL_FUTURE_WRITE", kvmem_share_create_region, region, NULL);
    memory_fill(region, 9);
    CLEANUP(parcel_close) parcel parcel = share(region, KVMEM_SHARE_READ_ONLY);
    CLEANUP(peer_finish) peer importer = holder_start();
    CHECK_EQ(holder_open(&importer, &parcel, 0), KVMEM_STATUS_OK);
    holder_check(&importer, HOLDING_OPENED, 9);
}

/* What an importer has mapped stays writable, so the share would promise too much. */
TEST(a_file_that_was_shared_to_be_written_is_not_sealed_later) {
    const kvmem_share_options sealed =
        OPTIONS(kvmem_share_options, it.flags = KVMEM_SHARE_READ_ONLY | KVMEM_SHARE_WRITE_SEALED);
    CLEANUP(engine_file_close) engine_file file = engine_file_open();
    OWNED(kvmem_region) region = adopt(REF(part_of(&file, file.bytes + OFFSET)));
    CLEANUP(parcel_close) parcel to_read = share(region, KVMEM_SHARE_READ_ONLY);
    CLEANUP(parcel_close) parcel to_write = share(region, 0);
    REFUSE(KVMEM_STATUS_INVALID_STATE, "shared before to be written", kvmem_share_create_region, region,
           &sealed);
    CHECK_EQ(fcntl(file.fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE, 0);
    /* A share to be read does not count. */
    CLEANUP(engine_file_close) engine_file other = engine_file_open();
    OWNED(kvmem_region) unwritten = adopt(REF(part_of(&other, other.bytes + OFFSET)));
    CLEANUP(parcel_close) parcel again = share(unwritten, KVMEM_SHARE_READ_ONLY);
    CLEANUP(parcel_close) parcel last = share(unwritten, sealed.flags);
    CHECK(fcntl(other.fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "F_SEAL_FUTURE_WRITE", kvmem_share_create_region, unwritten, NULL);
}

/* Before Linux 6.7, only a descriptor opened for reading can map such a file. */
TEST(a_file_that_no_process_can_write_is_adopted_read_only) {
    const engine_file file = engine_file_open();
    memset(file.bytes, 0x33, FILE_SIZE);
    CHECK_EQ(munmap(file.bytes, FILE_SIZE), 0);
    CHECK_EQ(fcntl(file.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    const kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.flags = KVMEM_ADOPT_READ_ONLY);
    OWNED(kvmem_region) region = adopt(&options);
    CHECK_EQ(close(file.fd), 0);
    CHECK_FILLED((const unsigned char *)(uintptr_t)region_info(region).address, 0x33, MEMORY_SIZE);
    REFUSE(KVMEM_STATUS_PERMISSION_DENIED, "KVMEM_ADOPT_READ_ONLY", kvmem_share_create_region, region, NULL);
    CLEANUP(parcel_close) parcel parcel = share(region, KVMEM_SHARE_READ_ONLY);
}

TEST(the_part_must_be_in_the_file) {
    CLEANUP(engine_file_close) const engine_file file = engine_file_open();
    kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.offset = OFFSET + 1);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "page size 4096");
    options.offset = FILE_SIZE;
    options.size = 1;
    refuse(&options, KVMEM_STATUS_OUT_OF_RANGE, "ftruncate");
    options.offset = UINT64_MAX - PAGE + 1;
    options.size = 2 * PAGE;
    refuse(&options, KVMEM_STATUS_OUT_OF_RANGE, "bytes at offset");
    options = part_of(&file, NULL);
    options.size = FILE_SIZE - OFFSET + 1;
    refuse(&options, KVMEM_STATUS_OUT_OF_RANGE, "the file has");
    options.size = 0;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "missing: size");
}

/* 0 could be a memory file, but then a program that forgets to set fd would adopt its standard input. */
TEST(an_fd_that_was_not_set_fails) {
    CLEANUP(engine_file_close) const engine_file file = engine_file_open();
    const int input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    CHECK_EQ(dup2(file.fd, STDIN_FILENO), STDIN_FILENO);
    const kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.fd = 0);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "missing: fd; duplicate a file that is open as fd 0 (dup)");
    CHECK_EQ(close(STDIN_FILENO), 0);
    if (input >= 0) {
        CHECK_EQ(dup2(input, STDIN_FILENO), STDIN_FILENO);
        CHECK_EQ(close(input), 0);
    }
}

TEST(files_other_than_memory_files_fail) {
    CLEANUP(engine_file_close) const engine_file file = engine_file_open();
    kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.fd = 999);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "fd 999 is not open");
    options.fd = -1;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "fd -1 is not open");
    int pipes[2];
    CHECK_EQ(pipe2(pipes, O_CLOEXEC), 0);
    options.fd = pipes[0];
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "a pipe");
    options.flags = KVMEM_ADOPT_READ_ONLY;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "a pipe");
    close(pipes[0]);
    close(pipes[1]);
    options.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "only a memory file can be adopted");
    close(options.fd);
    options.fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "not open for reading");
    close(options.fd);
}

/* Importers map the file, so the memory at the address must be the same part of the file. */
TEST(the_address_must_map_the_same_part_of_the_file) {
    CLEANUP(engine_file_close) const engine_file file = engine_file_open();
    CLEANUP(engine_file_close) const engine_file other = engine_file_open();
    kvmem_adopt_memfd_options options = part_of(&file, file.bytes);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "mapped from offset 0 of the file, not from 12288");
    options.address = other.bytes + OFFSET;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "another file");
    unsigned char *pages = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd, OFFSET);
    CHECK(pages != MAP_FAILED);
    options.address = pages;
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "MAP_SHARED");
    /* A page of another file in the middle. */
    CHECK(mmap(pages, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd, OFFSET) == pages);
    kvmem_region_destroy(adopt(&options));
    unsigned char *middle = pages + MIB;
    CHECK(mmap(middle, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, other.fd,
               OFFSET + MIB) == middle);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "another file");
    CHECK_EQ(munmap(middle, PAGE), 0);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "not mapped");
    /* Two adjacent mappings, one of them read-only. */
    CHECK(mmap(middle, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file.fd, OFFSET + MIB) == middle);
    refuse(&options, KVMEM_STATUS_INVALID_ARGUMENT, "PROT_WRITE");
    options.flags = KVMEM_ADOPT_READ_ONLY;
    kvmem_region_destroy(adopt(&options));
    CHECK_EQ(munmap(pages, MEMORY_SIZE), 0);
}

TEST(a_failed_adoption_calls_no_release_and_leaks_nothing) {
    CLEANUP(engine_file_close) const engine_file file = engine_file_open();
    const size_t files = count_open_files();
    const size_t mappings = count_file_mappings();
    kvmem_adopt_memfd_options options = WITH(part_of(&file, NULL), it.release = note_release,
                                            it.size = FILE_SIZE);
    const int before = releases_count();
    refuse(&options, KVMEM_STATUS_OUT_OF_RANGE, "the file has");
    CHECK_EQ(releases_count(), before);
    CHECK_EQ(count_open_files(), files);
    CHECK_EQ(count_file_mappings(), mappings);
}
