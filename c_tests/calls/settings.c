// SPDX-License-Identifier: Apache-2.0
// Reads the options.
#include "settings.h"

#include <time.h>

settings_values settings = {.calls = 120, .threads = 1, .patience = 20};

static _Noreturn void usage(void) {
    printf("calls_fuzz [option]...\n"
           "  --seed N         seed of the first sequence (default: KVMEM_FUZZ_SEED, else the time)\n"
           "  --sequences N    run N sequences, with seeds N, N + 1, ...\n"
           "  --seconds N      run as many as fit into N seconds (default: KVMEM_FUZZ_SECONDS, else 10)\n"
           "  --calls N        operations of a sequence and thread (default: 120)\n"
           "  --threads N      threads that work on the same handles (default: 1)\n"
           "  --nixl LIST      create agents, with these backends: '', POSIX, UCX or POSIX,UCX (default: no agents)\n"
           "  --only LIST      of each sequence make only the calls with these numbers\n"
           "  --patience N     wait N seconds for what ends on other threads (default: 20)\n"
           "  --faults         during some calls a driver call, opening a file or starting a thread fails; 1 thread\n"
           "  --minimise       find fewer calls with which the sequence of --seed still fails\n"
           "  --print-calls    print each call\n"
           "  --print-functions  print how often each function was called\n"
           "  --collect-statuses  print statuses that are not documented, and continue\n"
           "  --needs-all      fail if a function never succeeded, even in four times the sequences\n");
    exit(2);
}

static uint64_t number(const char *text) {
    char *end = NULL;
    const uint64_t value = text != NULL ? strtoull(text, &end, 0) : 0;
    if (text == NULL || end == text || *end != '\0') usage();
    return value;
}

static void read_environment(void) {
    const char *seed = getenv("KVMEM_FUZZ_SEED");
    const char *seconds = getenv("KVMEM_FUZZ_SECONDS");
    settings.seed = seed != NULL ? number(seed) : (uint64_t)time(NULL) * 1000000;
    settings.seconds = seconds != NULL ? number(seconds) : 0;
}

static bool read_switch(const char *option) {
    static const struct {
        const char *option;
        bool *is_set;
    } switches[] = {
        {"--faults", &settings.faults},
        {"--minimise", &settings.minimises},
        {"--print-calls", &settings.prints_calls},
        {"--print-functions", &settings.prints_functions},
        {"--collect-statuses", &settings.collects_statuses},
        {"--needs-all", &settings.needs_all},
    };
    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
        if (strcmp(option, switches[i].option) == 0) {
            *switches[i].is_set = true;
            return true;
        }
    }
    return false;
}

static void read_value(const char *option, const char *value) {
    static const struct {
        const char *option;
        uint64_t *number;
        const char **text;
    } values[] = {
        {"--seed", &settings.seed, NULL},         {"--sequences", &settings.sequences, NULL},
        {"--seconds", &settings.seconds, NULL},   {"--calls", &settings.calls, NULL},
        {"--threads", &settings.threads, NULL},   {"--patience", &settings.patience, NULL},
        {"--only", NULL, &settings.only},         {"--nixl", NULL, &settings.nixl},
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (value != NULL && strcmp(option, values[i].option) == 0) {
            if (values[i].number != NULL) *values[i].number = number(value);
            else *values[i].text = value;
            return;
        }
    }
    usage();
}

void settings_read(int argc, char **argv) {
    settings.program = argv[0];
    read_environment();
    for (int i = 1; i < argc; i++) {
        if (!read_switch(argv[i])) {
            read_value(argv[i], argv[i + 1]); /* NULL after the last */
            i++;
        }
    }
    if (settings.sequences == 0 && settings.seconds == 0) settings.seconds = 10;
    if (settings.faults && settings.threads > 1) usage();
    if (settings.threads == 0 || settings.threads > 64 || settings.calls == 0 || settings.calls > 1u << 20)
        usage();
}

void settings_print_replay(uint64_t sequence) {
    printf("replay: %s --seed %llu --sequences 1 --calls %llu --threads %llu", settings.program,
           (unsigned long long)sequence, (unsigned long long)settings.calls,
    (unsigned long long)settings.threads);
    if (settings.nixl != NULL) printf(" --nixl '%s'", settings.nixl);
    if (settings.faults) printf(" --faults");
    if (settings.only != NULL) printf(" --only %s", settings.only);
    printf("\n");
}

bool settings_has_call(uint64_t index) {
    const char *rest = settings.only;
    if (rest == NULL) return true;
    while (*rest != '\0') {
        char *end = NULL;
        if (strtoull(rest, &end, 10) == index && end != rest) return true;
        rest = *end == ',' ? end + 1 : end + strlen(end);
    }
    return false;
}

bool settings_cannot_succeed(const char *function) {
    /* No peer in another process, and no agent with a listen thread or telemetry. UCX supports memory views
       only for GPU memory. */
    static const char *const never[] = {"kvmem_agent_send_partial_metadata",
                                        "kvmem_agent_invalidate_local_metadata",
                                        "kvmem_request_get_telemetry", "kvmem_agent_get_telemetry",
                                        "kvmem_memory_view_create",
                                        "kvmem_agent_fetch_remote_metadata",
                                        "kvmem_agent_send_local_metadata", "kvmem_region_open_ipc"};
    static const char *const agents[] = {"kvmem_agent_", "kvmem_registration_", "kvmem_notification",
                                         "kvmem_region_register", "kvmem_region_get_agent",
                                         "kvmem_layout_export", "kvmem_layout_import", "kvmem_layout_serve", "kvmem_nixl_",
                                         "kvmem_layout_create_remote", "kvmem_segments_",
                                         "kvmem_prepared_", "kvmem_request_",
                                         "kvmem_directory_publish", "kvmem_directory_withdraw",
                                         "kvmem_directory_look_up", "kvmem_directory_check",
                                         "kvmem_directory_connect",
                                         "kvmem_directory_take_events", "kvmem_directory_entry_"};
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        if (strcmp(function, never[i]) == 0) return true;
    }
    for (size_t i = 0; i < sizeof(agents) / sizeof(agents[0]) && settings.nixl == NULL; i++) {
        if (strncmp(function, agents[i], strlen(agents[i])) == 0) return true;
    }
    return false;
}
