// SPDX-License-Identifier: Apache-2.0
// Many agents, each with its own directory, find all others in etcd. With KVMEM_TEST_FIGURES set there are
// 200, and the durations are printed.
#include "etcd_server.h"

#include <time.h>

#define MAX_AGENTS 200
#define AGENTS (getenv("KVMEM_TEST_FIGURES") != NULL ? MAX_AGENTS : 24)

static kvmem_agent *agents[MAX_AGENTS];
static kvmem_directory *directories[MAX_AGENTS];

static double now(void) {
    struct timespec time;
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &time), 0);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void print(const char *what, double since) {
    if (getenv("KVMEM_TEST_FIGURES") != NULL) {
        printf("%-60s %8.1f ms\n", what, (now() - since) * 1000);
        fflush(stdout);
    }
}

/* A UCX agent uses about ten file descriptors. */
static void allow_many_files(void) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Reads events until each agent was reported once. */
static void await_all(kvmem_directory *directory) {
    for (int found = 0; found < AGENTS;) {
        OWN(kvmem_directory_events, events, kvmem_directory_take_events, directory, PATIENCE);
        for (size_t i = 0; i < events->count; i++) {
            const kvmem_directory_event event = events->items[i];
            CHECK_EQ(event.kind, KVMEM_DIRECTORY_PUBLISHED);
            found++;
        }
    }
}

TEST(many_agents_find_each_other) {
    allow_many_files();
    OPENED(etcd_server, server, false);
    const char *endpoint = server.endpoint;
    const kvmem_directory_options options =
        OPTIONS(kvmem_directory_options, it.endpoints = &endpoint, it.endpoint_count = 1);
    double since = now();
    for (int i = 0; i < AGENTS; i++) {
        GET(kvmem_agent *, agent, kvmem_agent_create, TEXT("node-%03d", i),
            REF(OPTIONS(kvmem_agent_options, it.flags = KVMEM_AGENT_NO_PROGRESS_THREAD,
                        it.progress_delay_ns = 1000000000)));
        EXPECT_OK(kvmem_agent_create_backend(agent, "UCX", NULL, 0, ERR));
        agents[i] = agent;
    }
    print("200 agents created", since);
    since = now();
    for (int i = 0; i < AGENTS; i++) {
        EXPECT_OK(kvmem_directory_create(&options, &directories[i], ERR));
    }
    print("200 directories opened, one after the other", since);
    since = now();
    for (int i = 0; i < AGENTS; i++) {
        EXPECT_OK(kvmem_directory_watch(directories[i], NULL, PATIENCE, ERR));
    }
    print("each watches all, one after the other", since);
    since = now();
    for (int i = 0; i < AGENTS; i++) {
        EXPECT_OK(kvmem_directory_publish(directories[i], agents[i], NULL, 0, PATIENCE, ERR));
    }
    print("200 agents published, one after the other", since);
    for (int i = 0; i < AGENTS; i++) {
        await_all(directories[i]);
    }
    print("the same, until each has received all 200 events", since);
    since = now();
    for (int i = 0; i < AGENTS; i++) {
        OWN(kvmem_directory_entry, entry, kvmem_directory_look_up, directories[i],
            TEXT("node-%03d", (i + 1) % AGENTS), PATIENCE);
        EXPECT_OK(kvmem_directory_entry_load(entry, agents[i], ERR));
    }
    print("each looks up the next one and loads its metadata", since);
    since = now();
    for (int i = 0; i < AGENTS; i++) {
        kvmem_directory_destroy(directories[i]);
    }
    print("200 directories destroyed", since);
    for (int i = 0; i < AGENTS; i++) {
        kvmem_agent_destroy(agents[i]);
    }
    if (getenv("KVMEM_TEST_FIGURES") != NULL) {
        printf("etcd: http://127.0.0.1:%d/metrics\n", server.port);
        CHECK_EQ(system(TEXT("curl -s http://127.0.0.1:%d/metrics | grep -E '^(etcd_network_client_grpc_.*_bytes_total|"
                             "process_resident_memory_bytes|process_cpu_seconds_total|etcd_mvcc_db_total_size_in_bytes |"
                             "etcd_debugging_mvcc_keys_total)'", server.port)), 0);
    }
}
