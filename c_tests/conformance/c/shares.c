/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of shares and brokers. */
#include "calls.h"

#include <stdlib.h>
#include <string.h>


static kvmem_share *named_share(struct step *step)
{
    return object(text_of(step, "share"), SHARE);
}

static void read_share_options(struct step *step, kvmem_share_options *options)
{
    *options = (kvmem_share_options){.struct_size = sizeof(*options)};
    options->flags = flags_value(step, "flags", share_flags);
    options->transport = (uint32_t)word_value(step, "transport", transports);
}

static kvmem_status share_create_region(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_share_options options;
    read_share_options(step, &options);
    const kvmem_region *region = object(text_of(step, "region"), REGION);
    return kvmem_share_create_region(region, &options, &made->share, error);
}

static kvmem_status share_create_layout(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_share_options options;
    read_share_options(step, &options);
    const kvmem_layout *layout = object(text_of(step, "layout"), LAYOUT);
    return kvmem_share_create_layout(layout, &options, &made->share, error);
}

static kvmem_status share_create_received(struct step *step, union handle *made, kvmem_error **error)
{
    const kvmem_share *share = named_share(step);
    kvmem_share_info info;
    if (kvmem_share_get_info(share, &info, NULL) < 0) fail("the share is unusable");
    const size_t size = (size_t)info.size;
    unsigned char *bytes = malloc(size);
    if (!bytes) fail("no memory");
    memcpy(bytes, info.data, size);
    const uint64_t flip = number_or(step, "flip", UINT64_MAX);
    if (flip < size) bytes[flip] ^= 0xff;
    else if (flip != UINT64_MAX) fail("the share has only %zu bytes", size);
    const kvmem_status status =
        kvmem_share_create_received(bytes, size, info.fds, (size_t)info.num_fds, &made->share, error);
    free(bytes);
    return status;
}

static kvmem_status share_get_info(struct step *step, kvmem_error **error)
{
    kvmem_share_info info;
    const kvmem_status status = kvmem_share_get_info(object(step_name(step), SHARE), &info, error);
    if (status < 0) return status;
    NUMBER(info, num_fds);
    NUMBER(info, memory_size);
    WORD(info, object, shared_objects);
    WORD(info, tier, tiers);
    NUMBER(info, read_only);
    WORD(info, transport, transports);
    return status;
}

static void read_open_options(struct step *step, kvmem_open_options *options)
{
    *options = (kvmem_open_options){.struct_size = sizeof(*options)};
    options->flags = flags_value(step, "flags", open_flags);
    if (has(step, "agent")) options->agent = object(text_of(step, "agent"), AGENT);
}

static kvmem_status share_open_region(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_open_options options;
    read_open_options(step, &options);
    return kvmem_share_open_region(named_share(step), &options, &made->region, error);
}

static kvmem_status share_open_layout(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_open_options options;
    read_open_options(step, &options);
    return kvmem_share_open_layout(named_share(step), &options, &made->layout, error);
}

/* ---- brokers ---- */

static kvmem_broker *broker_of(struct step *step)
{
    return object(step_name(step), BROKER);
}

static kvmem_status broker_create(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_broker_options options = {.struct_size = sizeof(options)};
    options.path = path_of(text_of(step, "path"));
    return kvmem_broker_create(&options, &made->broker, error);
}

static void read_publish_options(struct step *step, kvmem_publish_options *options)
{
    *options = (kvmem_publish_options){.struct_size = sizeof(*options)};
    options->flags = flags_value(step, "flags", publish_flags);
    SET(*options, max_uses);
}

static kvmem_status broker_publish(struct step *step, kvmem_error **error)
{
    kvmem_publish_options options;
    read_publish_options(step, &options);
    return kvmem_broker_publish(broker_of(step), text_of(step, "name"), named_share(step), &options,
        token_of(text_of(step, "token")), error);
}

static kvmem_status broker_grant(struct step *step, kvmem_error **error)
{
    kvmem_publish_options options;
    read_publish_options(step, &options);
    return kvmem_broker_grant(broker_of(step), text_of(step, "name"), &options,
                              token_of(text_of(step, "token")), error);
}

static kvmem_status broker_unpublish(struct step *step, kvmem_error **error)
{
    return kvmem_broker_unpublish(broker_of(step), text_of(step, "name"), error);
}

static kvmem_status broker_get_info(struct step *step, kvmem_error **error)
{
    kvmem_broker_info info;
    const kvmem_status status = kvmem_broker_get_info(broker_of(step), &info, error);
    if (status < 0) return status;
    NUMBER(info, publications);
    NUMBER(info, granted);
    NUMBER(info, refused);
    return status;
}

static kvmem_status share_fetch(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_fetch_options options = {.struct_size = sizeof(options)};
    options.flags = flags_value(step, "flags", fetch_flags);
    options.path = path_of(text_of(step, "path"));
    options.name = text_of(step, "name");
    options.token = token_of(text_of(step, "token"));
    return kvmem_share_fetch(&options, UINT64_C(10000000000), &made->share, error);
}

const struct call share_calls[] = {
    {"share_create_region", .create = share_create_region, .type = SHARE},
    {"share_create_layout", .create = share_create_layout, .type = SHARE},
    {"share_create_received", .create = share_create_received, .type = SHARE},
    {"share_get_info", .run = share_get_info},
    {"share_open_region", .create = share_open_region, .type = REGION},
    {"share_open_layout", .create = share_open_layout, .type = LAYOUT},
    {"broker_create", .create = broker_create, .type = BROKER},
    {"broker_publish", .run = broker_publish},
    {"broker_grant", .run = broker_grant},
    {"broker_unpublish", .run = broker_unpublish},
    {"broker_get_info", .run = broker_get_info},
    {"share_fetch", .create = share_fetch, .type = SHARE},
    {.name = NULL},
};
