// SPDX-License-Identifier: Apache-2.0
#include "object_store.h"

python object_store;
static char endpoint[64];

const char *object_store_lacks(void) { return python_lacks("moto"); }

static void serve(const char *port) {
    const char *chosen = python_open(&object_store, KVMEM_TEST_S3_SERVER, port);
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%s", chosen);
}

void object_store_start(void) {
    if (object_store.pid == 0) serve("0");
}

void object_store_kill(void) { python_kill(&object_store); }

void object_store_restart(void) {
    char port[16];
    snprintf(port, sizeof(port), "%s", strrchr(endpoint, ':') + 1);
    python_close(&object_store);
    serve(port);
}

void object_store_create_backend_for(kvmem_agent *agent, const char *bucket, const char *other) {
    const kvmem_parameter parameters[] = {
        {"bucket", bucket != NULL ? bucket : "blocks"},
        {"endpoint_override", other != NULL ? other : endpoint},
        {"scheme", "http"},
        {"region", "us-east-1"},
        {"access_key", "key"},
        {"secret_key", "secret"},
        {"req_checksum", "required"},
        {"resp_checksum", "required"},
        {"use_virtual_addressing", "false"},
    };
    EXPECT_OK(kvmem_agent_create_backend(agent, "OBJ", parameters, NUM(parameters), ERR));
}

void object_store_create_backend(kvmem_agent *agent) { object_store_create_backend_for(agent, NULL, NULL); }
