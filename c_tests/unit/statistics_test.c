// SPDX-License-Identifier: Apache-2.0
// The counters of the process, as structs and as text for Prometheus.
#include "flight.h"
#include "harness.h"
#include "prometheus.h"

static const kvmem_block_pair pairs[] = {{0, 1}, {63, 0}, {5, 63}, {6, 62}, {40, 7}};
static const kv_move move = {pairs, NUM(pairs), 0, 0, 4};
#define BYTES (NUM(pairs) * 4 * 2 * 32768)
/* That of at most 16 MiB. */
#define CLASS 2

static kvmem_statistics process(void) {
    kvmem_statistics statistics = OPTIONS(kvmem_statistics);
    EXPECT_OK(kvmem_statistics_get(&statistics, ERR));
    return statistics;
}

static kvmem_method_statistics copies(void) {
    kvmem_method_statistics statistics = OPTIONS(kvmem_method_statistics);
    EXPECT_OK(kvmem_statistics_get_method(KVMEM_METHOD_MEMCPY, &statistics, ERR));
    return statistics;
}

static uint64_t runs(const kvmem_method_statistics *statistics, kvmem_status status) {
    return statistics->runs[KVMEM_DIRECTION_HOST_TO_HOST][-status];
}

static uint64_t latencies(const kvmem_method_statistics *statistics) {
    uint64_t sum = 0;
    for (size_t i = 0; i < NUM(statistics->latencies[CLASS]); i++) sum += statistics->latencies[CLASS][i];
    return sum;
}

static uint64_t failed_calls(const char *status) {
    OWN(kvmem_blob, blob, kvmem_statistics_text);
    const char *name = TEXT("\nkvmem_call_errors_total{status=\"%s\"} ", status);
    const char *line = strstr(kvmem_blob_data(blob), name);
    return line == NULL ? 0 : strtoull(line + strlen(name), NULL, 10);
}

static uint64_t elapsed_waits(void) {
    OWN(kvmem_blob, blob, kvmem_statistics_text);
    const char *name = "\nkvmem_waits_elapsed_total ";
    return strtoull(strstr(kvmem_blob_data(blob), name) + strlen(name), NULL, 10);
}

TEST(a_run_is_in_flight_and_then_has_succeeded) {
    OPENED(flight, flight, &move, 0);
    const kvmem_method_statistics before = copies();
    CHECK_EQ(process().runs_in_flight, 0);
    flight_hold(&flight, 0, 0);
    CHECK_EQ(process().runs_in_flight, 1);
    CHECK_EQ(runs(REF(copies()), KVMEM_STATUS_OK), runs(&before, KVMEM_STATUS_OK));
    gate_open();
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    const kvmem_method_statistics after = copies();
    CHECK_EQ(process().runs_in_flight, 0);
    CHECK_EQ(runs(&after, KVMEM_STATUS_OK) - runs(&before, KVMEM_STATUS_OK), 1);
    CHECK_EQ(after.bytes[KVMEM_DIRECTION_HOST_TO_HOST] - before.bytes[KVMEM_DIRECTION_HOST_TO_HOST], BYTES);
    CHECK_EQ(latencies(&after) - latencies(&before), 1);
    CHECK_EQ(after.latency_sums_ns[CLASS] - before.latency_sums_ns[CLASS],
             transfer_info(flight.transfer).duration_ns);
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

TEST(a_late_run_is_counted_once_at_its_deadline) {
    OPENED(flight, flight, &move, 0);
    const kvmem_method_statistics before = copies();
    flight_hold_late(&flight, &move);
    flight_expect_end(&flight, &move, FLIGHT_USER_DATA, KVMEM_STATUS_TIMED_OUT);
    const kvmem_method_statistics late = copies();
    size_t series;
    CHECK_EQ(prometheus_sum("kvmem_layout_runs_total", "side=\"destination\",outcome=\"timed_out\"", &series), 1);
    CHECK_EQ(process().runs_in_flight, 0);
    CHECK_EQ(runs(&late, KVMEM_STATUS_TIMED_OUT) - runs(&before, KVMEM_STATUS_TIMED_OUT), 1);
    const uint64_t failed = failed_calls("timed_out"), elapsed = elapsed_waits();
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, 0, ERR)); /* the run has failed */
    CHECK_EQ(failed_calls("timed_out") - failed, 1);
    CHECK_EQ(elapsed_waits(), elapsed);
    OWN(kvmem_blob, trace, kvmem_trace_export);
    CHECK_HAS(kvmem_blob_data(trace), TEXT("\"user_data\":\"0x%llx\",\"bytes\":%llu,\"status\":\"timed_out\"",
                                           (unsigned long long)FLIGHT_USER_DATA, (unsigned long long)BYTES));
    gate_open();
    CHECK_EQ(submit_when_free(flight.transfer), KVMEM_STATUS_OK);
    EXPECT_OK(kvmem_transfer_wait(flight.transfer, PATIENCE, ERR));
    CHECK_EQ(runs(REF(copies()), KVMEM_STATUS_TIMED_OUT), runs(&late, KVMEM_STATUS_TIMED_OUT));
    CHECK_EQ(runs(REF(copies()), KVMEM_STATUS_OK) - runs(&before, KVMEM_STATUS_OK), 1);
}

TEST(the_phases_of_the_last_run_are_explained) {
    OPENED(flight, flight, &move, 0);
    const kvmem_submit_options blocks = OPTIONS(kvmem_submit_options, it.pairs = pairs, it.num_pairs = NUM(pairs));
    EXPECT_OK(kvmem_transfer_prepare(flight.transfer, &blocks, ERR));
    CHECK(strstr(kv_explained(flight.transfer, NULL), "last run") == NULL);
    RUN(flight.transfer);
    const char *text = strstr(kv_explained(flight.transfer, NULL), "\nlast run: ");
    CHECK(text != NULL);
    CHECK_HAS(text, " us: queued ");
    CHECK_HAS(text, " us (not estimated), moved ");
    CHECK_HAS(text, " us (estimated ");
    CHECK_HAS(text, " us), completed ");
    kvmem_submit_options checked = WITH(blocks, it.flags = KVMEM_SUBMIT_VERIFY);
    static const char *const of_check[] = {"(assumed ", "(estimated "};
    for (size_t i = 0; i < NUM(of_check); i++) {
        RUN_WITH(flight.transfer, &checked);
        const char *verified = strstr(kv_explained(flight.transfer, NULL), ", verified ");
        CHECK(verified != NULL);
        CHECK_HAS(strchr(verified, '('), of_check[i]);
    }
    const kvmem_submit_options others = WITH(blocks, it.num_pairs = 1);
    EXPECT_OK(kvmem_transfer_prepare(flight.transfer, &others, ERR));
    text = strstr(kv_explained(flight.transfer, NULL), "\nlast run, of other blocks: ");
    CHECK(text != NULL && strstr(text, "estimated") == NULL);
}

TEST(a_failed_call_is_counted_by_its_status) {
    const uint64_t invalid = failed_calls("invalid_argument"), found = failed_calls("not_found");
    kvmem_method_statistics method = OPTIONS(kvmem_method_statistics);
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_statistics_get_method(12, &method, ERR));
    EXPECT(KVMEM_STATUS_INVALID_ARGUMENT, kvmem_statistics_get_method(13, &method, NULL));
    EXPECT_OK(kvmem_statistics_get_method(0, &method, ERR));
    CHECK_EQ(failed_calls("invalid_argument") - invalid, 2);
    CHECK_EQ(failed_calls("not_found"), found);
}

TEST(a_wait_whose_timeout_elapses_has_not_failed) {
    OPENED(flight, flight, &move, 0);
    const uint64_t failed = failed_calls("timed_out"), elapsed = elapsed_waits();
    flight_hold(&flight, 0, 0);
    kvmem_completion completion;
    size_t count = 0;
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait(flight.transfer, 0, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_transfer_wait_layers(flight.transfer, 1, 1, ERR));
    EXPECT(KVMEM_STATUS_TIMED_OUT, kvmem_queue_wait(flight.queue, 1, &completion, 1, &count, ERR));
    CHECK_EQ(elapsed_waits() - elapsed, 3);
    CHECK_EQ(failed_calls("timed_out"), failed);
    gate_open();
    flight_expect_moved(&flight, &move, FLIGHT_USER_DATA);
}

TEST(memory_and_handles_are_counted_while_they_exist) {
    const kvmem_statistics before = process();
    const kvmem_system_options options = OPTIONS(kvmem_system_options, it.size = 1 << 20);
    kvmem_region *region = MADE(kvmem_region, kvmem_region_create_system, &options);
    kvmem_region *view = MADE(kvmem_region, kvmem_region_create_view, region, 0, 4096);
    CHECK_EQ(process().system_bytes - before.system_bytes, 1 << 20);
    CHECK_EQ(process().num_regions - before.num_regions, 2);
    kvmem_region_destroy(region);
    CHECK_EQ(process().system_bytes - before.system_bytes, 1 << 20); /* the view holds it */
    kvmem_region_destroy(view);
    CHECK_EQ(process().system_bytes, before.system_bytes);
    CHECK_EQ(process().num_regions, before.num_regions);
    OPENED(kv_side, side, REF(kv_config(&kv_kinds[0])), NULL, 1);
    kvmem_lease *lease = MADE(kvmem_lease, kvmem_lease_create, side.layout, REF((uint32_t)0), 1, NULL);
    CHECK_EQ(process().num_leases - before.num_leases, 1);
    kvmem_lease_destroy(lease);
    CHECK_EQ(process().num_leases, before.num_leases);
}

TEST(a_struct_of_another_size_gets_what_it_has) {
    struct {
        kvmem_statistics known;
        uint64_t unknown[2];
    } newer = {.known.struct_size = sizeof(kvmem_statistics) + 8, .unknown = {7, 7}};
    EXPECT_OK(kvmem_statistics_get(&newer.known, ERR));
    CHECK_EQ(newer.unknown[0], 0);
    CHECK_EQ(newer.unknown[1], 7);
    CHECK_EQ(newer.known.struct_size, sizeof(kvmem_statistics) + 8);
    kvmem_statistics wrong = {.struct_size = 8};
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "struct_size of kvmem_statistics is 8",
                   kvmem_statistics_get(&wrong, ERR));
    kvmem_method_statistics method = OPTIONS(kvmem_method_statistics);
    EXPECT_MESSAGE(KVMEM_STATUS_INVALID_ARGUMENT, "method is 12",
                   kvmem_statistics_get_method(12, &method, ERR));
    EXPECT_OK(kvmem_statistics_get_method(0, &method, ERR));
}

TEST(the_text_is_in_the_format_of_prometheus) {
    OPENED(flight, flight, &move, 0);
    RUN(flight.transfer);
    OWN(kvmem_blob, blob, kvmem_statistics_text);
    const char *text = kvmem_blob_data(blob);
    prometheus_check(text);
    const kvmem_method_statistics counted = copies();
    const struct {
        const char *series;
        uint64_t value;
    } expected[] = {
        {"kvmem_runs_total{method=\"memcpy\",direction=\"host_to_host\",status=\"ok\"}",
         runs(&counted, KVMEM_STATUS_OK)},
        {"kvmem_bytes_total{method=\"memcpy\",direction=\"host_to_host\"}",
         counted.bytes[KVMEM_DIRECTION_HOST_TO_HOST]},
        {"kvmem_run_duration_seconds_count{method=\"memcpy\",max_bytes=\"16777216\"}", latencies(&counted)},
        {"kvmem_runs_in_flight", 0},
        {"kvmem_region_bytes{tier=\"system\"}", process().system_bytes},
        {"kvmem_handles{type=\"transfer\"}", 1},
        {"kvmem_mapped_bytes", process().mapped_bytes},
        {"kvmem_file_retries_total", process().num_file_retries},
        {"kvmem_excess_bytes_total", process().excess_bytes},
        {"kvmem_waits_elapsed_total", process().num_elapsed_waits},
    };
    for (size_t i = 0; i < NUM(expected); i++)
        CHECK_HAS(text, TEXT("\n%s %llu\n", expected[i].series, (unsigned long long)expected[i].value));
    /* Those of docs/statistics.md. */
    static const char *const metrics[] = {
        "kvmem_runs_total", "kvmem_bytes_total", "kvmem_run_duration_seconds", "kvmem_runs_in_flight",
        "kvmem_region_bytes", "kvmem_elastic_committed_bytes", "kvmem_registrations", "kvmem_store_hits_total",
        "kvmem_store_misses_total", "kvmem_store_evicted_total", "kvmem_store_damaged_total", "kvmem_handles",
        "kvmem_excess_bytes_total", "kvmem_peer_staging_waits_total", "kvmem_gpu_waits_total",
        "kvmem_call_errors_total", "kvmem_waits_elapsed_total", "kvmem_mapped_bytes", "kvmem_staging_bytes", "kvmem_locked_bytes_limit",
        "kvmem_fallbacks_total", "kvmem_file_retries_total", "kvmem_agent_runs_total", "kvmem_agent_bytes_total",
        "kvmem_agent_registrations", "kvmem_layout_runs_total", "kvmem_layout_bytes_total", "kvmem_queue_taken_total",
        "kvmem_queue_completions", "kvmem_store_runs_total", "kvmem_store_bytes_total", "kvmem_store_events_total",
        "kvmem_store_slots", "kvmem_unlisted_objects", "kvmem_peer_leases", "kvmem_peer_leased_blocks",
    };
    for (size_t i = 0; i < NUM(metrics); i++) CHECK_HAS(text, TEXT("# TYPE %s ", metrics[i]));
    CHECK_HAS(text, "kvmem_run_duration_seconds_bucket{method=\"memcpy\",max_bytes=\"16777216\",le=\"0.000001024\"} ");
}

TEST(each_layout_and_queue_has_series_until_it_is_destroyed) {
    static const char from[] = "side=\"source\"", to[] = "side=\"destination\"";
    size_t series;
    prometheus_sum("kvmem_queue_completions", "", &series);
    CHECK_EQ(series, 0);
    {
        OPENED(flight, flight, &move, 0);
        RUN(flight.transfer);
        RUN(flight.transfer);
        CHECK_EQ(prometheus_sum("kvmem_layout_bytes_total", from, &series), 2 * BYTES);
        CHECK_EQ(series, 1);
        CHECK_EQ(prometheus_sum("kvmem_layout_runs_total", "side=\"source\",outcome=\"ok\"", &series), 2);
        CHECK_EQ(prometheus_sum("kvmem_layout_runs_total", "outcome=\"failed\"", &series), 0);
        CHECK_EQ(prometheus_sum("kvmem_queue_completions", "", &series), 2);
        kvmem_completion completion;
        GET(size_t, count, kvmem_queue_wait, flight.queue, 0, &completion, 1);
        CHECK_EQ(count, 1);
        CHECK_EQ(prometheus_sum("kvmem_queue_taken_total", "", &series), 1);
        CHECK_EQ(prometheus_sum("kvmem_queue_completions", "", &series), 1);
        /* The runs of a transfer that is destroyed remain, and those of the next one are added. */
        kvmem_transfer_destroy(flight.transfer);
        flight.transfer = flight_transfer(&flight, &move, 0, FLIGHT_USER_DATA);
        RUN(flight.transfer);
        CHECK_EQ(prometheus_sum("kvmem_layout_bytes_total", to, &series), 3 * BYTES);
        CHECK_EQ(series, 1);
    }
    CHECK_EQ(prometheus_sum("kvmem_layout_bytes_total", "", &series), 0);
    CHECK_EQ(series, 0);
    prometheus_sum("kvmem_queue_taken_total", "", &series);
    CHECK_EQ(series, 0);
}

/* The destination keeps what its transfers with a source have in common, and not the series of the source. */
TEST(a_layout_that_is_destroyed_has_no_series_while_the_other_one_lives) {
    static const char from[] = "side=\"source\"", to[] = "side=\"destination\"";
    size_t series;
    kv_side source, destination;
    kv_side_open(&source, REF(kv_large_config(&kv_kinds[0])), NULL, 7);
    kv_side_open(&destination, REF(kv_large_config(&kv_kinds[1])), NULL, 8);
    kvmem_transfer *transfer = MADE(kvmem_transfer, kv_prepare, source.layout, destination.layout, KV_JOB(&move));
    RUN(transfer);
    kvmem_transfer_destroy(transfer);
    kv_side_close(&source);
    prometheus_sum("kvmem_layout_bytes_total", from, &series);
    CHECK_EQ(series, 0);
    CHECK_EQ(prometheus_sum("kvmem_layout_bytes_total", to, &series), BYTES);
    kv_side_close(&destination);
}

/* Of too many objects, the first have series. */
TEST(the_number_of_series_is_limited) {
    enum { LISTED = 1000, OTHERS = 3 };
    static kvmem_queue *queues[LISTED + OTHERS];
    size_t series;
    struct rlimit files;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < NUM(queues) + 100) SKIP("the process may not have more than 1000 open files");
    files.rlim_cur = files.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    for (size_t i = 0; i < NUM(queues); i++) EXPECT_OK(kvmem_queue_create(&queues[i], ERR));
    prometheus_sum("kvmem_queue_taken_total", "", &series);
    CHECK_EQ(series, LISTED);
    CHECK_EQ(prometheus_sum("kvmem_unlisted_objects", "type=\"queue\"", &series), OTHERS);
    for (size_t i = 0; i < OTHERS; i++) kvmem_queue_destroy(queues[i]);
    CHECK_EQ(prometheus_sum("kvmem_unlisted_objects", "type=\"queue\"", &series), 0);
    prometheus_sum("kvmem_queue_taken_total", "", &series);
    CHECK_EQ(series, LISTED);
    for (size_t i = OTHERS; i < NUM(queues); i++) kvmem_queue_destroy(queues[i]);
}

static void have_own_series(void) {
    size_t series;
    prometheus_sum("kvmem_layout_runs_total", "", &series);
    CHECK_EQ(series, 0);
    OWN(kvmem_queue, queue, kvmem_queue_create);
    prometheus_sum("kvmem_queue_taken_total", "", &series);
    CHECK_EQ(series, 1);
}

/* It may not use the objects of its parent. */
TEST(a_forked_child_has_no_series_of_its_parent) {
    OPENED(flight, flight, &move, 0);
    RUN(flight.transfer);
    in_a_forked_child(have_own_series);
}

/* The check above finds each kind of mistake. */
TEST(texts_in_other_formats_are_found) {
    static const char *const wrong[] = {
        "kvmem_a 1\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a counter\nkvmem_a 1\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a gauge\nkvmem_b 1\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a gauge\nkvmem_a one\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a gauge\nkvmem_a{b=c} 1\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a gauge\nkvmem_a{b=\"c\\d\"} 1\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a gauge\nkvmem_a{b=\"c\"d\"} 1\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a gauge\nkvmem_a 1",
        "# HELP kvmem_a A.\n# TYPE kvmem_a gauge\nkvmem_a 1\nkvmem_a 1\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a histogram\nkvmem_a_bucket{le=\"1\"} 2\nkvmem_a_bucket{le=\"+Inf\"} 1\n"
        "kvmem_a_sum 1\nkvmem_a_count 1\n",
        "# HELP kvmem_a A.\n# TYPE kvmem_a histogram\nkvmem_a_bucket{le=\"+Inf\"} 1\nkvmem_a_sum 1\nkvmem_a_count 2\n",
    };
    for (size_t i = 0; i < NUM(wrong); i++) {
        const char *found = prometheus_mistake(wrong[i]);
        CHECK(found != NULL);
    }
}
