// SPDX-License-Identifier: Apache-2.0
#include "published.h"

#include "sample.h"

kvmem_token token;

static kvmem_broker *broker;
static sample published;

void published_open(kvmem_broker_options options) {
    options.path = hostile_path("broker");
    EXPECT_OK(kvmem_broker_create(&options, &broker, ERR));
    sample_open(&published);
    EXPECT_OK(kvmem_broker_publish(broker, "kv", published.share, NULL, &token, ERR));
    hostile_put("token", &token, sizeof(token));
}

void published_close(void) {
    kvmem_broker_destroy(broker);
    sample_close(&published);
}

void published_take_token(void) {
    CLEANUP(message_free) message taken = hostile_take("token");
    CHECK_EQ(taken.size, sizeof(token));
    memcpy(&token, taken.data, sizeof(token));
}
