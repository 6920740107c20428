// SPDX-License-Identifier: Apache-2.0
// NIXL without layouts: one agent writes to memory of another one, and the message of each write arrives in a queue.
// Both agents are in this process; between processes, the metadata and the addresses are sent over any connection.
#include <kvmem.h>
#include <kvmem/nixl_raw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 4096 };

static const uint64_t patience_ns = 30ull * 1000 * 1000 * 1000;
static char to_send[SIZE], received[SIZE]; // memory of the engine, in no region

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

static kvmem_agent *start_agent(const char *name, kvmem_error **error)
{
    kvmem_agent *agent;
    check(kvmem_agent_create(name, NULL, &agent, error), error);
    check(kvmem_agent_create_backend(agent, "UCX", NULL, 0, error), error);
    return agent;
}

static kvmem_nixl_descriptor host_memory(const void *memory, size_t size)
{
    const kvmem_nixl_descriptor range = {
        .address = (uintptr_t)memory, .size = size, .memory_type = KVMEM_MEMORY_DRAM};
    return range;
}

// Waits for the completion that reports messages, and takes the first of them.
static void print_message(kvmem_agent *agent, kvmem_queue *queue, kvmem_error **error)
{
    kvmem_completion completion;
    size_t count;
    kvmem_notifications *messages;
    check(kvmem_queue_wait(queue, patience_ns, &completion, 1, &count, error), error);
    check(kvmem_agent_take_notifications(agent, 0, &messages, error), error);
    const kvmem_notification *message = messages->items;
    printf("%s: %.*s: %s\n", message->agent, (int)message->size, (const char *)message->data, received);
    kvmem_notifications_destroy(messages);
}

int main(void)
{
    kvmem_error *error = NULL;
    alarm(60);
    kvmem_agent *sender = start_agent("sender", &error), *receiver = start_agent("receiver", &error);

    // The receiver registers its memory, and publishes its metadata and the descriptor. A queue reports messages.
    const kvmem_nixl_descriptor remote = host_memory(received, SIZE);
    kvmem_segments *target, *source;
    check(kvmem_segments_register(receiver, &remote, 1, NULL, &target, &error), &error);
    kvmem_blob *metadata;
    check(kvmem_agent_get_local_metadata(receiver, &metadata, &error), &error);
    kvmem_queue *queue;
    check(kvmem_queue_create(&queue, &error), &error);
    check(kvmem_agent_report_notifications(receiver, queue, 0, &error), &error);

    // The sender registers its own memory, and creates a request, which can be posted any number of times.
    const kvmem_nixl_descriptor local = host_memory(to_send, SIZE);
    check(kvmem_segments_register(sender, &local, 1, NULL, &source, &error), &error);
    check(kvmem_agent_load_remote_metadata(sender, kvmem_blob_data(metadata), kvmem_blob_size(metadata), NULL,
        &error), &error);
    kvmem_request *request;
    check(kvmem_request_create(sender, KVMEM_REQUEST_WRITE, &local, "receiver", &remote, 1, NULL, &request,
        &error), &error);

    for (int step = 0; step < 2; step++) {
        snprintf(to_send, SIZE, "activations of step %d", step);
        check(kvmem_request_post(request, "written", strlen("written"), &error), &error);
        check(kvmem_request_wait(request, patience_ns, &error), &error);
        print_message(receiver, queue, &error);
    }

    kvmem_request_destroy(request);
    kvmem_segments_destroy(source);
    kvmem_segments_destroy(target);
    kvmem_blob_destroy(metadata);
    kvmem_queue_destroy(queue);
    kvmem_agent_destroy(receiver);
    kvmem_agent_destroy(sender);
}
