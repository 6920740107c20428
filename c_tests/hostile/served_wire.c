// SPDX-License-Identifier: Apache-2.0
#include "served_wire.h"

#include <dlfcn.h>
#include <stdlib.h>

/* ---- CBOR, as far as it is needed ---- */

static void put(served_message *to, const void *data, size_t size) {
    CHECK(to->size + size <= sizeof(to->bytes));
    memcpy(to->bytes + to->size, data, size);
    to->size += size;
}

static void put_head(served_message *to, unsigned kind, uint64_t value) {
    unsigned char head[9] = {(unsigned char)(kind << 5 | 27)};
    for (int i = 0; i < 8; i++) head[1 + i] = (unsigned char)(value >> (56 - 8 * i));
    if (value < 24) head[0] = (unsigned char)(kind << 5 | value);
    put(to, head, value < 24 ? 1 : sizeof(head));
}

static void put_text(served_message *to, const char *text) {
    put_head(to, 3, strlen(text));
    put(to, text, strlen(text));
}

static void put_number(served_message *to, const char *key, uint64_t value) {
    put_text(to, key);
    put_head(to, 0, value);
}

static void put_range(served_message *to, const char *key, uint64_t first, uint64_t count) {
    put_text(to, key);
    put_head(to, 4, 2);
    put_head(to, 0, first);
    put_head(to, 0, count);
}

static void put_bool(served_message *to, const char *key, bool value) {
    put_text(to, key);
    put_head(to, 7, value ? 21 : 20);
}

/* ---- messages ---- */

#define PREFIX 24
#define HEADER 20

static void begin(served_message *to, const unsigned char service[16], uint64_t session) {
    to->size = 0;
    put(to, "KVMEMSRV", 8);
    put(to, service, 16);
    put(to, "KVMEMREQ\2\0\0\0\0\0\0\0\0\0\0\0", HEADER);
    put_head(to, 5, 2);
    put_text(to, "session");
    put_head(to, 2, 16);
    put(to, &session, 8);
    put(to, "hostile", 8);
    put_text(to, "body");
}

static void seal(served_message *to) {
    unsigned char *header = to->bytes + PREFIX;
    const uint32_t length = (uint32_t)(to->size - PREFIX - HEADER);
    memcpy(header + 12, &length, 4);
    const uint32_t sum = crc_append(crc_append(0, header, 16), header + HEADER, length);
    memcpy(header + 16, &sum, 4);
}

served_open served_open_for(const kvmem_layout_config *config, uint64_t session) {
    return (served_open){
        .session = session,
        .bytes = config->num_layers * config->outer_dim * config->page_size * config->inner_dim * config->dtype_width,
        .chunk_size = 4096,
        .num_layers = config->num_layers,
        .of_heads = 1,
        .tokens = config->page_size,
        .element_size = config->dtype_width,
        .blocks = 1,
        .spans = 1,
    };
}

/* One whose end cannot be proven. */
static void put_process(served_message *to) {
    put_text(to, "process");
    put_head(to, 5, 4);
    put_text(to, "boot_id");
    put_text(to, "");
    put_number(to, "pid", 0);
    put_number(to, "start_time", 0);
    put_number(to, "pid_namespace", 0);
}

void served_write_open(served_message *to, const unsigned char service[16], const served_open *request) {
    begin(to, service, request->session);
    put_head(to, 5, 1);
    put_text(to, "Open");
    put_head(to, 5, 6);
    put_process(to);
    put_bool(to, "writes", request->writes);
    put_number(to, "bytes", request->bytes);
    put_number(to, "chunk_size", request->chunk_size);
    put_bool(to, "verifies", false);
    put_text(to, "terms");
    put_head(to, 5, 1);
    put_text(to, "sections");
    put_head(to, 4, 1);
    put_head(to, 5, 10);
    put_text(to, "part");
    put_text(to, "");
    put_text(to, "order");
    put_text(to, "BLONHC");
    put_number(to, "element_size", request->element_size);
    put_range(to, "layers", request->first_layer, request->num_layers);
    put_range(to, "outers", 0, 2);
    put_range(to, "heads", 0, 1);
    put_number(to, "of_heads", request->of_heads);
    put_number(to, "tokens", request->tokens);
    put_number(to, "token_step", 1);
    put_text(to, "spans");
    const uint32_t span[3] = {request->block, request->token, request->blocks};
    put_head(to, 2, request->spans * sizeof(span));
    for (size_t i = 0; i < request->spans; i++) put(to, span, sizeof(span));
    seal(to);
}

void served_write_progress(served_message *to, const unsigned char service[16], uint64_t session, uint64_t chunks) {
    begin(to, service, session);
    put_head(to, 5, 1);
    put_text(to, "Progress");
    put_head(to, 5, 2);
    put_number(to, "chunks", chunks);
    put_text(to, "checksums");
    put_head(to, 4, SERVED_SLOTS);
    for (uint64_t i = 0; i < SERVED_SLOTS; i++) put_head(to, 0, i);
    seal(to);
}

void served_write_close(served_message *to, const unsigned char service[16], uint64_t session) {
    begin(to, service, session);
    put_text(to, "Close");
    seal(to);
}

void served_write_lease(served_message *to, const unsigned char service[16], const served_lease *lease) {
    begin(to, service, lease->session);
    put_head(to, 5, 1);
    put_text(to, "Lease");
    put_head(to, 5, 5);
    put_process(to);
    put_number(to, "number", lease->number);
    put_number(to, "milliseconds", lease->milliseconds);
    put_bool(to, "writes", lease->writes);
    put_text(to, "blocks");
    const uint32_t span[2] = {lease->block, lease->blocks};
    put_head(to, 2, lease->spans * sizeof(span));
    for (size_t i = 0; i < lease->spans; i++) put(to, span, sizeof(span));
    seal(to);
}

/* ---- the descriptor ---- */

static const unsigned char *after(const message *in, const unsigned char *from, const char *key, size_t size) {
    const unsigned char *at = memmem(from, (size_t)(in->data + in->size - from), key, size);
    CHECK(at != NULL);
    return at + size;
}

static const unsigned char *service_of(const message *descriptor) { return after(descriptor, descriptor->data, "served", 6); }

const unsigned char *served_id(const message *descriptor) {
    return after(descriptor, service_of(descriptor), "\x62id\x50", 4);
}

uint64_t served_arena(const message *descriptor) {
    const unsigned char *arena = after(descriptor, service_of(descriptor), "\x65" "arena", 6);
    const unsigned char *head = after(descriptor, arena, "\x67" "address", 8);
    const unsigned size = 1u << (*head & 31) % 24;
    CHECK(*head >= 24 && *head <= 27);
    uint64_t address = 0;
    for (unsigned i = 0; i < size; i++) address = address << 8 | head[1 + i];
    return address;
}

/* ---- NIXL ---- */

typedef struct agent_config {
    bool progress_thread, listen_thread;
    int listen_port;
    unsigned thread_sync, num_workers;
    uint64_t progress_delay, listen_delay;
    bool telemetry;
} agent_config;

static void *agent, *known;
static int (*send_notification)(void *agent, const char *name, const void *bytes, size_t size, void *options);

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) FAIL("%s: %s", name, dlerror());
    return found;
}

/* The address of a function, as that type. */
#define FUNCTION(variable, name)                          \
    do {                                                  \
        void *found_ = function(library, "nixl_capi_" name); \
        memcpy(&(variable), &found_, sizeof(found_));     \
    } while (0)

void raw_agent_open(const char *name, const message *metadata) {
    void *library = dlopen(getenv("KVMEM_NIXL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) FAIL("%s", dlerror());
    int (*create)(const char *, const agent_config *, void **);
    int (*get_parameters)(void *, const char *, void **, void **);
    int (*create_backend)(void *, const char *, void *, void **);
    int (*load)(void *, const void *, size_t, void **);
    FUNCTION(create, "create_configured_agent");
    FUNCTION(get_parameters, "get_plugin_params");
    FUNCTION(create_backend, "create_backend");
    FUNCTION(load, "load_remote_md");
    FUNCTION(send_notification, "gen_notif");
    const agent_config config = {true, false, 0, 0, 1, 1000, 1000, false};
    void *memory_types = NULL, *parameters = NULL, *backend = NULL;
    CHECK(create(name, &config, &agent) >= 0);
    CHECK(get_parameters(agent, "UCX", &memory_types, &parameters) >= 0);
    CHECK(create_backend(agent, "UCX", parameters, &backend) >= 0);
    CHECK(load(agent, metadata->data, metadata->size, &known) >= 0);
}

void raw_agent_send(const void *bytes, size_t size) { CHECK(send_notification(agent, known, bytes, size, NULL) >= 0); }
