// SPDX-License-Identifier: Apache-2.0
// What a failed call returns: a status, a message and the native cause. And the library's log.
#include <kvmem.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints an error and frees it. Returns its status. */
static kvmem_status report(kvmem_error *error)
{
    kvmem_status status = kvmem_error_status(error);
    kvmem_error_cause cause;
    fprintf(stderr, "%s: %s\n", kvmem_status_name(status), kvmem_error_message(error, NULL));
    if (kvmem_error_get_cause(error, &cause) == KVMEM_STATUS_OK && cause.domain != KVMEM_DOMAIN_NONE)
        fprintf(stderr, "cause: %s (%d)\n", cause.name, (int)cause.code);
    kvmem_error_destroy(error);
    return status;
}

/* Runs on a thread of kvmem, one message at a time. */
static void log_message(uint32_t level, const char *target, const char *message, void *user_data)
{
    fprintf((FILE *)user_data, "%u %s: %s\n", (unsigned)level, target, message);
}

int main(void)
{
    kvmem_disk_options file = {.struct_size = sizeof file, .path = "/no/such/directory/cache.kv",
        .flags = KVMEM_DISK_OPEN_EXISTING};
    kvmem_region *region;
    kvmem_error *error = NULL;

    if (kvmem_log_set_callback(KVMEM_LOG_DEBUG, log_message, stdout, &error) < 0) return report(error);
    kvmem_status status = kvmem_region_create_disk(&file, &region, &error);
    if (status < 0) status = report(error);
    /* Delivers what was logged before, and then stops. */
    if (kvmem_log_set_callback(KVMEM_LOG_OFF, NULL, NULL, &error) < 0) return report(error);
    printf("opening the file %s\n", status == KVMEM_STATUS_NOT_FOUND ? "failed: not found" : "went wrong");
    return status == KVMEM_STATUS_NOT_FOUND ? EXIT_SUCCESS : EXIT_FAILURE;
}
