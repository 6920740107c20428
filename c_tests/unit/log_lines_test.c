// SPDX-License-Identifier: Apache-2.0
// Log lines: one per operation at DEBUG, failed calls with their function, every call at TRACE, and none of
// these at lower levels.
#include "harness.h"

/* The messages of a case. The log's thread writes them, and has finished when the callback is removed. */
static struct line {
    uint32_t level;
    char target[64];
    char text[512];
} lines[1024];
static size_t num_lines;

static void record(uint32_t level, const char *target, const char *message, void *user_data) {
    (void)user_data;
    if (num_lines < NUM(lines)) {
        struct line *line = &lines[num_lines++];
        line->level = level;
        snprintf(line->target, sizeof(line->target), "%s", target);
        snprintf(line->text, sizeof(line->text), "%s", message);
    }
}

static void begin_log(uint32_t level) {
    num_lines = 0;
    EXPECT_OK(kvmem_log_set_callback(level, record, NULL, ERR));
}

static void end_log(void) {
    EXPECT_OK(kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, ERR));
    CHECK(num_lines < NUM(lines));
}

/* The next line, from `from` on, that contains both texts. */
static const struct line *find(const struct line *from, const char *part, const char *other) {
    for (const struct line *line = from; line < lines + num_lines; line++) {
        if (strstr(line->text, part) != NULL && strstr(line->text, other) != NULL) return line;
    }
    return NULL;
}

static const struct line *expect(uint32_t level, const char *part, const char *other) {
    const struct line *found = find(lines, part, other);
    if (found == NULL) {
        for (size_t i = 0; i < num_lines; i++)
            fprintf(stderr, "%u %s: %s\n", lines[i].level, lines[i].target, lines[i].text);
        FAIL("no line with '%s' and '%s'", part, other);
    }
    CHECK_EQ(found->level, level);
    CHECK(strncmp(found->target, "kvmem::", 7) == 0);
    return found;
}

/* "transfer #7": the name of an object in all of its lines. */
static void name_in(const struct line *line, const char *type, char *name, size_t size) {
    const char *start = strstr(line->text, type);
    CHECK(start != NULL);
    const size_t length = strlen(type) + 1 + strcspn(start + strlen(type) + 1, " ");
    snprintf(name, size, "%.*s", (int)length, start);
}

/* A move of all layers of one block. */
static const kvmem_block_pair pair = {0, 1};
static const kv_move move = {&pair, 1, 0, 0, 3};

static void move_once(const kvmem_layout *source, const kvmem_layout *destination, kvmem_status expected) {
    OWN(kvmem_transfer, transfer, kv_prepare, source, destination, KV_JOB(&move));
    RUN_ENDS(expected, "", transfer);
}

TEST(a_layout_and_its_memory_have_lines) {
    kv_side side;
    begin_log(KVMEM_LOG_DEBUG);
    kv_side_open(&side, REF(kv_config(&kv_kinds[0])), NULL, 1);
    kv_side_close(&side);
    end_log();
    char layout[32], region[32];
    name_in(expect(KVMEM_LOG_DEBUG, "layout #", "created: 7 blocks of 3 layers"), "layout", layout,
            sizeof(layout));
    name_in(expect(KVMEM_LOG_DEBUG, "region #", "memory, "), "region", region, sizeof(region));
    expect(KVMEM_LOG_DEBUG, layout, "destroyed");
    expect(KVMEM_LOG_DEBUG, region, "freed");
}

TEST(a_transfer_has_a_line_for_each_step) {
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), NULL, 1);
    begin_log(KVMEM_LOG_DEBUG);
    move_once(side.layout, side.layout, KVMEM_STATUS_OK);
    end_log();
    static const char *const steps[] = {"prepared: memcpy", "submitted", "GB/s", "destroyed"};
    char transfer[32];
    const struct line *line = expect(KVMEM_LOG_DEBUG, "transfer #", steps[0]);
    name_in(line, "transfer", transfer, sizeof(transfer));
    CHECK_HAS(line->text, "288 bytes in 6 pieces"); /* 3 layers, K and V, of 48 bytes */
    for (size_t i = 1; i < NUM(steps); i++) { /* in this order */
        line = find(line, transfer, steps[i]);
        CHECK(line != NULL);
        CHECK_EQ(line->level, KVMEM_LOG_DEBUG);
    }
}

static kvmem_layout *file_layout(const char *path, const kvmem_layout_config *config) {
    OWNED(kvmem_region) region = region_create_disk(
        REF(OPTIONS(kvmem_disk_options, it.path = path, it.size = 65536, it.flags = KVMEM_DISK_BUFFERED)));
    return regions_lay_out(config, &region, 1, NULL);
}

TEST(a_file_and_a_transfer_that_fails_have_lines) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    SCRATCH_FILE(path, "cache");
    OPENED(kv_side, side, &config, NULL, 1);
    begin_log(KVMEM_LOG_DEBUG);
    OWNED(kvmem_layout) layout = file_layout(path, &config);
    CHECK_EQ(truncate(path, 0), 0);
    move_once(layout, side.layout, KVMEM_STATUS_IO);
    end_log();
    expect(KVMEM_LOG_DEBUG, "file opened: ", path);
    expect(KVMEM_LOG_DEBUG, "transfer #", "failed after");
    expect(KVMEM_LOG_DEBUG, " us: KVMEM_STATUS_IO: ", "failed after");
    expect(KVMEM_LOG_DEBUG, "kvmem_transfer_wait: KVMEM_STATUS_IO: ", "");
}

TEST(a_share_has_a_line_per_step) {
    kvmem_system_options options = OPTIONS(kvmem_system_options, it.flags = KVMEM_SYSTEM_SHAREABLE,
                                           it.size = 4096);
    kvmem_region *region = NULL, *opened = NULL;
    EXPECT_OK(kvmem_region_create_system(&options, &region, ERR));
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    kvmem_share *sent = NULL, *received = NULL;
    begin_log(KVMEM_LOG_DEBUG);
    EXPECT_OK(kvmem_share_create_region(region, NULL, &sent, ERR));
    EXPECT_OK(kvmem_share_send(sent, ends[0], PATIENCE, ERR));
    EXPECT_OK(kvmem_share_receive(ends[1], PATIENCE, &received, ERR));
    EXPECT_OK(kvmem_share_open_region(received, NULL, &opened, ERR));
    kvmem_region_destroy(opened);
    kvmem_share_destroy(sent);
    kvmem_share_destroy(received);
    end_log();
    kvmem_region_destroy(region);
    close(ends[0]);
    close(ends[1]);
    expect(KVMEM_LOG_DEBUG, "of region #", "created: 1 region, ");
    expect(KVMEM_LOG_DEBUG, "share sent", "file descriptors");
    expect(KVMEM_LOG_DEBUG, "share received", "file descriptors");
    const struct line *line = expect(KVMEM_LOG_DEBUG, "opened as region #", "4096 bytes");
    unsigned long long number = 0;
    CHECK_EQ(sscanf(line->text, "share #%llu opened", &number), 1);
    char destroyed[64];
    snprintf(destroyed, sizeof(destroyed), "share #%llu destroyed", number);
    expect(KVMEM_LOG_DEBUG, destroyed, "");
}

TEST(a_release_and_a_queue_have_lines) {
    static unsigned char memory[4096];
    begin_log(KVMEM_LOG_DEBUG);
    kvmem_region_destroy(region_adopt_noting_release(memory, sizeof(memory)));
    finish_releases();
    GET(kvmem_queue *, queue, kvmem_queue_create);
    kvmem_queue_destroy(queue);
    end_log();
    expect(KVMEM_LOG_DEBUG, "calling the release callback of 4096 bytes", "");
    expect(KVMEM_LOG_DEBUG, "queue #", "created");
    expect(KVMEM_LOG_DEBUG, "queue #", "destroyed with 0 completions");
}

TEST(a_failed_call_has_one_line_with_its_function) {
    static unsigned char memory[4096];
    kvmem_region *region = region_adopt(memory, sizeof(memory)), *view = NULL;
    begin_log(KVMEM_LOG_DEBUG);
    EXPECT(KVMEM_STATUS_OUT_OF_RANGE, kvmem_region_create_view(region, 4096, 1, &view, ERR));
    CHECK_EQ(kvmem_region_create_view(NULL, 0, 1, &view, NULL), KVMEM_STATUS_INVALID_ARGUMENT);
    end_log();
    kvmem_region_destroy(region);
    CHECK_EQ(num_lines, 2);
    const struct line *line =
        expect(KVMEM_LOG_DEBUG, "kvmem_region_create_view: KVMEM_STATUS_OUT_OF_RANGE: ",
               "a view of 1 bytes at offset 4096");
    CHECK_STR(line->target, "kvmem::ffi::region::view");
    expect(KVMEM_LOG_DEBUG, "kvmem_region_create_view: KVMEM_STATUS_INVALID_ARGUMENT: ", "region is NULL");
}

/* A caller that polls would fill the log at DEBUG. */
TEST(a_timeout_is_logged_at_trace) {
    OWN(kvmem_queue, queue, kvmem_queue_create);
    kvmem_completion completion;
    size_t count = 0;
    begin_log(KVMEM_LOG_DEBUG);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_queue_wait(queue, 1, &completion, 1, &count, ERR));
    end_log();
    CHECK_EQ(num_lines, 0);
    begin_log(KVMEM_LOG_TRACE);
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_queue_wait(queue, 1, &completion, 1, &count, ERR));
    end_log();
    expect(KVMEM_LOG_TRACE, "kvmem_queue_wait: KVMEM_STATUS_TIMED_OUT", "");
}

TEST(every_call_has_a_line_at_trace) {
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), NULL, 1);
    begin_log(KVMEM_LOG_TRACE);
    GET(kvmem_block, block, kvmem_layout_get_block, side.layout, 0, 0, 0);
    end_log();
    CHECK_EQ(num_lines, 1);
    expect(KVMEM_LOG_TRACE, "kvmem_layout_get_block: KVMEM_STATUS_OK", "");
}

/* The selected path of a file is the best one; other possible paths are not logged as impossible. */
TEST(a_path_that_is_possible_is_not_logged_as_impossible) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    SCRATCH_FILE(path, "cache");
    OPENED(kv_side, side, &config, NULL, 1);
    OWNED(kvmem_layout) layout = file_layout(path, &config);
    begin_log(KVMEM_LOG_INFO);
    move_once(layout, side.layout, KVMEM_STATUS_OK);
    move_once(side.layout, layout, KVMEM_STATUS_OK);
    end_log();
    CHECK(find(lines, "is not possible", "") == NULL);
}

TEST(operations_have_no_lines_at_info) {
    const kvmem_layout_config config = kv_config(&kv_kinds[0]);
    kv_side side;
    begin_log(KVMEM_LOG_INFO);
    kv_side_open(&side, &config, NULL, 1);
    move_once(side.layout, side.layout, KVMEM_STATUS_OK);
    REFUSE(KVMEM_STATUS_INVALID_ARGUMENT, "", kvmem_region_create_view, NULL, 0, 1);
    kv_side_close(&side);
    end_log();
    CHECK_EQ(num_lines, 0);
}
