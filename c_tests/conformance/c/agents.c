/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of agents and registrations, and of layouts that peers access. */
#include "calls.h"

#include <stdio.h>
#include <string.h>

static kvmem_agent *agent_of(struct step *step)
{
    return object(step_name(step), AGENT);
}

static kvmem_status agent_create(struct step *step, union handle *made, kvmem_error **error)
{
    kvmem_agent_options options = {.struct_size = sizeof(options)};
    options.flags = flags_value(step, "flags", agent_flags);
    return kvmem_agent_create(text_of(step, "name"), &options, &made->agent, error);
}

static kvmem_status agent_name(struct step *step, kvmem_error **error)
{
    (void)error;
    add_text(step, "name", kvmem_agent_name(agent_of(step)));
    return KVMEM_STATUS_OK;
}

static kvmem_status create_backend(struct step *step, kvmem_error **error)
{
    return kvmem_agent_create_backend(agent_of(step), text_of(step, "plugin"), NULL, 0, error);
}

static kvmem_status get_backends(struct step *step, kvmem_error **error)
{
    kvmem_plugins *backends = NULL;
    const kvmem_status status = kvmem_agent_get_backends(agent_of(step), &backends, error);
    if (status < 0) return status;
    add_text(step, "names", "");
    for (size_t i = 0; i < backends->count; i++) append_item(step, backends->items[i].name);
    kvmem_plugins_destroy(backends);
    return status;
}

/* ---- registrations ---- */

static kvmem_status region_register(struct step *step, union handle *made, kvmem_error **error)
{
    return kvmem_region_register(object(text_of(step, "region"), REGION),
        object(text_of(step, "agent"), AGENT), &made->registration, error);
}

static kvmem_status registration_info(struct step *step, kvmem_error **error)
{
    kvmem_registration_info info;
    const kvmem_status status = kvmem_registration_get_info(object(step_name(step), REGISTRATION), &info,
                                                            error);
    if (status < 0) return status;
    NUMBER(info, size);
    WORD(info, memory_type, memory_types);
    NUMBER(info, registered);
    return status;
}

static kvmem_status region_agent(struct step *step, kvmem_error **error)
{
    kvmem_blob *agent = NULL;
    const kvmem_status status =
        kvmem_region_get_agent(object(step_name(step), REGION), (size_t)number_of(step, "index"), &agent,
                               error);
    return add_blob(step, "agent", agent, status);
}

/* ---- metadata and descriptors ---- */

static kvmem_status local_metadata(struct step *step, kvmem_error **error)
{
    kvmem_blob *metadata = NULL;
    const kvmem_status status = kvmem_agent_get_local_metadata(agent_of(step), &metadata, error);
    return store_blob(step, "metadata", metadata, status);
}

static kvmem_status load_metadata(struct step *step, kvmem_error **error)
{
    size_t size;
    const void *metadata = stored_bytes(step, "metadata", &size);
    kvmem_blob *peer = NULL;
    const kvmem_status status = kvmem_agent_load_remote_metadata(agent_of(step), metadata, size, &peer,
                                                                 error);
    return add_blob(step, "peer", peer, status);
}

static kvmem_status check_metadata(struct step *step, kvmem_error **error)
{
    return kvmem_agent_check_remote_metadata(agent_of(step), text_of(step, "peer"), error);
}

static kvmem_status invalidate_metadata(struct step *step, kvmem_error **error)
{
    return kvmem_agent_invalidate_remote_metadata(agent_of(step), text_of(step, "peer"), NULL, error);
}

static kvmem_status invalidate_all(struct step *step, kvmem_error **error)
{
    size_t count = 0;
    const kvmem_status status = kvmem_agent_invalidate_remote_metadata(agent_of(step), NULL, &count, error);
    if (status >= 0) add_number(step, "count", count);
    return status;
}

static kvmem_status layout_export(struct step *step, kvmem_error **error)
{
    kvmem_blob *descriptor = NULL;
    const kvmem_status status = kvmem_layout_export(object(step_name(step), LAYOUT), &descriptor, error);
    return store_blob(step, "descriptor", descriptor, status);
}

static kvmem_status layout_import(struct step *step, union handle *made, kvmem_error **error)
{
    size_t size;
    const void *descriptor = stored_bytes(step, "descriptor", &size);
    return kvmem_layout_import(object(text_of(step, "agent"), AGENT), descriptor, size, &made->layout, error);
}

/* ---- notifications ---- */

static kvmem_status notify(struct step *step, kvmem_error **error)
{
    const char *message = text_of(step, "message");
    return kvmem_agent_notify(agent_of(step), text_of(step, "peer"), message, strlen(message), error);
}

static kvmem_status take_notifications(struct step *step, kvmem_error **error)
{
    kvmem_notifications *taken = NULL;
    const kvmem_status status = kvmem_agent_take_notifications(agent_of(step),
        number_or(step, "timeout_ns", KVMEM_TIMEOUT_FOREVER), &taken, error);
    if (status < 0) return status;
    add_text(step, "notifications", "");
    for (size_t i = 0; i < taken->count; i++) {
        const kvmem_notification *one = &taken->items[i];
        char text[512];
        snprintf(text, sizeof text, "%s:%.*s", one->agent, (int)one->size, (const char *)one->data);
        append_item(step, text);
    }
    kvmem_notifications_destroy(taken);
    return status;
}

const struct call agent_calls[] = {
    {"agent_create", .create = agent_create, .type = AGENT},
    {"agent_name", .run = agent_name},
    {"agent_create_backend", .run = create_backend},
    {"agent_get_backends", .run = get_backends},
    {"agent_get_local_metadata", .run = local_metadata},
    {"agent_load_remote_metadata", .run = load_metadata},
    {"agent_check_remote_metadata", .run = check_metadata},
    {"agent_invalidate_remote_metadata", .run = invalidate_metadata},
    {"agent_invalidate_all_remote_metadata", .run = invalidate_all},
    {"agent_notify", .run = notify},
    {"agent_take_notifications", .run = take_notifications},
    {"region_register", .create = region_register, .type = REGISTRATION},
    {"region_get_agent", .run = region_agent},
    {"registration_get_info", .run = registration_info},
    {"layout_export", .run = layout_export},
    {"layout_import", .create = layout_import, .type = LAYOUT},
    {.name = NULL},
};
