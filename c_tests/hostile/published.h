// SPDX-License-Identifier: Apache-2.0
// A broker, which has published a region as "kv", for rows of brokers and of their clients.
#pragma once

#include "hostile.h"

/* Of the region that is published. */
extern kvmem_token token;

/* In the process of the broker: opens it and publishes. `options` need no path. */
void published_open(kvmem_broker_options options);
void published_close(void);
/* In another process: takes the token. */
void published_take_token(void);
