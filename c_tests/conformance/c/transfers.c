/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of queues and transfers. */
#include "calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static kvmem_transfer *transfer_of(struct step *step)
{
    return object(step_name(step), TRANSFER);
}

static uint64_t timeout_of(struct step *step)
{
    return number_or(step, "timeout_ns", KVMEM_TIMEOUT_FOREVER);
}

/* ---- queues ---- */

static kvmem_status queue_create(struct step *step, union handle *made, kvmem_error **error)
{
    (void)step;
    return kvmem_queue_create(&made->queue, error);
}

static kvmem_status add_completions(struct step *step, const kvmem_completion *completions, size_t count,
                                    kvmem_status status)
{
    if (status < 0) return status;
    add_text(step, "completions", "");
    for (size_t i = 0; i < count; i++) {
        const kvmem_completion *one = &completions[i];
        char text[128];
        if (one->kind == KVMEM_COMPLETION_LAYERS_MOVED)
            snprintf(text, sizeof text, "%" PRIu64 ":layers:%" PRIu64, one->user_data, one->num_layers);
        else
            snprintf(text, sizeof text, "%" PRIu64 ":%" PRIu64 ":%s", one->user_data, one->bytes,
                kvmem_status_name(one->status) + strlen("KVMEM_STATUS_"));
        append_item(step, text);
    }
    return status;
}

static size_t capacity_of(struct step *step)
{
    const size_t capacity = (size_t)number_of(step, "capacity");
    if (capacity > MAX_LIST) fail("the capacity is too large");
    return capacity;
}

static kvmem_status queue_poll(struct step *step, kvmem_error **error)
{
    kvmem_completion completions[MAX_LIST];
    size_t count = 0;
    const kvmem_status status = kvmem_queue_wait(object(step_name(step), QUEUE), 0, completions,
                                                 capacity_of(step), &count, error);
    return add_completions(step, completions, count, status);
}

static kvmem_status queue_wait(struct step *step, kvmem_error **error)
{
    kvmem_completion completions[MAX_LIST];
    size_t count = 0;
    const kvmem_status status = kvmem_queue_wait(object(step_name(step), QUEUE), timeout_of(step),
                                                 completions,
        capacity_of(step), &count, error);
    return add_completions(step, completions, count, status);
}

/* ---- transfers ---- */

struct blocks {
    kvmem_block_pair pairs[MAX_LIST];
    size_t num_pairs;
    uint32_t checksums[MAX_LIST], source[MAX_LIST], destination[MAX_LIST];
    uint64_t epochs[MAX_LIST];
    kvmem_block_table source_table, destination_table;
    bool has_checksums, has_epochs, has_source, has_destination;
    const char *notification;
};

static void read_blocks(struct step *step, struct blocks *blocks)
{
    char *items[MAX_LIST];
    memset(blocks, 0, sizeof *blocks);
    blocks->num_pairs = list_of(step, "pairs", items);
    for (size_t i = 0; i < blocks->num_pairs; i++) {
        char *colon = strchr(items[i], ':');
        if (!colon) fail("'%s' is not a pair", items[i]);
        *colon = '\0';
        blocks->pairs[i] = (kvmem_block_pair){(uint32_t)parse_number(items[i]),
                                              (uint32_t)parse_number(colon + 1)};
    }
    blocks->has_checksums = ids_of(step, "checksums", blocks->checksums) > 0;
    const size_t num_epochs = list_of(step, "epochs", items);
    for (size_t i = 0; i < num_epochs; i++) blocks->epochs[i] = parse_number(items[i]);
    blocks->has_epochs = num_epochs > 0;
    blocks->has_source = has(step, "source_blocks");
    blocks->source_table = (kvmem_block_table){blocks->source, ids_of(step, "source_blocks", blocks->source),
        number_of(step, "source_first"), number_of(step, "source_step")};
    blocks->has_destination = has(step, "destination_blocks");
    blocks->destination_table = (kvmem_block_table){blocks->destination,
        ids_of(step, "destination_blocks", blocks->destination), number_of(step, "destination_first"),
        number_of(step, "destination_step")};
    if (has(step, "notification")) blocks->notification = text_of(step, "notification");
}

static kvmem_submit_options submit_options(struct step *step, struct blocks *blocks)
{
    read_blocks(step, blocks);
    return (kvmem_submit_options){
        .struct_size = sizeof(kvmem_submit_options),
        .flags = flags_value(step, "submit_flags", submit_flags),
        .pairs = blocks->num_pairs ? blocks->pairs : NULL,
        .num_pairs = blocks->num_pairs,
        .source_table = blocks->has_source ? &blocks->source_table : NULL,
        .destination_table = blocks->has_destination ? &blocks->destination_table : NULL,
        .num_tokens = number_of(step, "num_tokens"),
        .user_data = number_of(step, "user_data"),
        .notification = blocks->notification,
        .notification_size = blocks->notification ? strlen(blocks->notification) : 0,
        .checksums = blocks->has_checksums ? blocks->checksums : NULL,
        .epochs = blocks->has_epochs ? blocks->epochs : NULL,
    };
}

static kvmem_transfer_options transfer_options(struct step *step, char **parts)
{
    kvmem_transfer_options options = {.struct_size = sizeof(options)};
    options.flags = flags_value(step, "flags", transfer_flags);
    SET_SELECTION(options);
    options.num_parts = list_of(step, "parts", parts);
    options.parts = options.num_parts ? (const char *const *)parts : NULL;
    options.method = (uint32_t)word_value(step, "method", methods);
    options.layers_per_completion = number_of(step, "layers_per_completion");
    if (has(step, "queue")) options.queue = object(text_of(step, "queue"), QUEUE);
    return options;
}

static const kvmem_layout *layout_of(struct step *step, const char *key)
{
    return object(text_of(step, key), LAYOUT);
}

static kvmem_status transfer_create(struct step *step, union handle *made, kvmem_error **error)
{
    char *parts[MAX_LIST];
    const kvmem_transfer_options options = transfer_options(step, parts);
    return kvmem_transfer_create(layout_of(step, "source"), layout_of(step, "destination"), &options,
                                 &made->transfer,
        error);
}

static kvmem_status transfer_start(struct step *step, union handle *made, kvmem_error **error)
{
    char *parts[MAX_LIST];
    static struct blocks blocks;
    const kvmem_transfer_options options = transfer_options(step, parts);
    const kvmem_submit_options first = submit_options(step, &blocks);
    return kvmem_transfer_start(layout_of(step, "source"), layout_of(step, "destination"), &options, &first,
        &made->transfer, error);
}

static kvmem_status transfer_prepare(struct step *step, kvmem_error **error)
{
    static struct blocks blocks;
    const kvmem_submit_options options = submit_options(step, &blocks);
    return kvmem_transfer_prepare(transfer_of(step), &options, error);
}

static kvmem_status transfer_submit(struct step *step, kvmem_error **error)
{
    static struct blocks blocks;
    const kvmem_submit_options options = submit_options(step, &blocks);
    const bool has_blocks = options.num_pairs > 0 || options.source_table || options.destination_table;
    return kvmem_transfer_submit(transfer_of(step), has_blocks ? &options : NULL, error);
}

static kvmem_status transfer_poll(struct step *step, kvmem_error **error)
{
    return kvmem_transfer_poll(transfer_of(step), error);
}

static kvmem_status transfer_wait(struct step *step, kvmem_error **error)
{
    return kvmem_transfer_wait(transfer_of(step), timeout_of(step), error);
}

static kvmem_status transfer_wait_layers(struct step *step, kvmem_error **error)
{
    return kvmem_transfer_wait_layers(transfer_of(step), number_of(step, "num_layers"), timeout_of(step),
                                      error);
}

static kvmem_status transfer_get_info(struct step *step, kvmem_error **error)
{
    kvmem_transfer_info info;
    const kvmem_status status = kvmem_transfer_get_info(transfer_of(step), &info, error);
    if (status < 0) return status;
    NUMBER(info, bytes);
    NUMBER(info, num_pieces);
    NUMBER(info, num_moves);
    NUMBER(info, num_requests);
    NUMBER(info, layers_moved);
    WORD(info, method, methods);
    return status;
}

/* The one that is used. */
static kvmem_status transfer_get_methods(struct step *step, kvmem_error **error)
{
    kvmem_compared_method used;
    size_t count = 0;
    const kvmem_status status = kvmem_transfer_get_methods(transfer_of(step), &used, 1, &count, error);
    if (status < 0) return status;
    WORD(used, method, methods);
    WORD(used, choice, choices);
    return status;
}

const struct call transfer_calls[] = {
    {"queue_create", .create = queue_create, .type = QUEUE},
    {"queue_poll", .run = queue_poll},
    {"queue_wait", .run = queue_wait},
    {"transfer_create", .create = transfer_create, .type = TRANSFER},
    {"transfer_start", .create = transfer_start, .type = TRANSFER},
    {"transfer_prepare", .run = transfer_prepare},
    {"transfer_submit", .run = transfer_submit},
    {"transfer_poll", .run = transfer_poll},
    {"transfer_wait", .run = transfer_wait},
    {"transfer_wait_layers", .run = transfer_wait_layers},
    {"transfer_get_info", .run = transfer_get_info},
    {"transfer_get_methods", .run = transfer_get_methods},
    {.name = NULL},
};
