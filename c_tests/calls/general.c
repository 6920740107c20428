// SPDX-License-Identifier: Apache-2.0
// Calls that need no handle: versions, statuses, errors, blobs, the log.
#include "table.h"

static void versions(fuzz *fuzz) {
    const char *text = (call_note(fuzz, FUNCTION_kvmem_version_string), kvmem_version_string());
    call_note(fuzz, FUNCTION_kvmem_abi_version);
    if (strlen(text) == 0 || kvmem_abi_version() != KVMEM_ABI_VERSION)
        fuzz_fail(fuzz, "version %s, ABI %u", text, kvmem_abi_version());
}

static void names(fuzz *fuzz) {
    const int32_t value =
        random_one_in(fuzz, 2) ? (int32_t)random_next(fuzz) : 2 - (int32_t)random_below(fuzz, 30);
    call_note(fuzz, FUNCTION_kvmem_status_message);
    if (DO(fuzz, kvmem_method_name, (uint32_t)value) == NULL || kvmem_status_message(value) == NULL) {
        fuzz_fail(fuzz, "no text for %d", (int)value);
    }
    /* Only counted, because failures are printed with kvmem_status_name. */
    call_note(fuzz, FUNCTION_kvmem_status_name);
    if (kvmem_status_name(value) == NULL) {
        fuzz_fail(fuzz, "no name for %d", (int)value);
    }
}

static void use_error(fuzz *fuzz) {
    const kvmem_error *error = table_pick(fuzz, ERRORS);
    size_t length = 0;
    const char *message = DO(fuzz, kvmem_error_message, error, or_null(fuzz, &length));
    if (message == NULL || DO(fuzz, kvmem_error_status, error) > 0)
        fuzz_fail(fuzz, "an error without a message or with a status that is none");
    kvmem_error_cause cause;
    call_note(fuzz, FUNCTION_kvmem_error_get_cause);
    const kvmem_status status = kvmem_error_get_cause(error, &cause);
    if (status != (error != NULL ? KVMEM_STATUS_OK : KVMEM_STATUS_INVALID_ARGUMENT))
        fuzz_fail(fuzz, "%s", kvmem_status_name(status));
}

DESTROYS(destroy_error, ERRORS)

static void use_blob(fuzz *fuzz) {
    const kvmem_blob *blob = table_pick(fuzz, BLOBS);
    const char *data = DO(fuzz, kvmem_blob_data, blob);
    const size_t size = DO(fuzz, kvmem_blob_size, blob);
    if (blob != NULL && data[size] != '\0') fuzz_fail(fuzz, "no NUL after %zu bytes", size);
}

DESTROYS(destroy_blob, BLOBS)

static void take_message(uint32_t level, const char *target, const char *message, void *user_data) {
    volatile size_t length = strlen(target) + strlen(message) + level + (user_data == POISON);
    (void)length;
}

static void set_log_callback(fuzz *fuzz) {
    const uint32_t level =
        random_one_in(fuzz, 20) ? (uint32_t)random_next(fuzz) : (uint32_t)random_below(fuzz, 6);
    TRY(fuzz, kvmem_log_set_callback, level, random_one_in(fuzz, 3) ? NULL : take_message, POISON);
}

static void read_statistics(fuzz *fuzz) {
    kvmem_statistics statistics = OPTIONS(kvmem_statistics);
    TRY(fuzz, kvmem_statistics_get, or_null(fuzz, &statistics));
    kvmem_method_statistics method = OPTIONS(kvmem_method_statistics);
    TRY(fuzz, kvmem_statistics_get_method, (uint32_t)random_below(fuzz, 13), or_null(fuzz, &method));
    kvmem_blob *text = NULL;
    TRY(fuzz, kvmem_statistics_text, &text);
    DO(fuzz, kvmem_blob_destroy, text);
    kvmem_blob *trace = NULL;
    TRY(fuzz, kvmem_trace_export, &trace);
    DO(fuzz, kvmem_blob_destroy, trace);
    TRY_0(fuzz, kvmem_statistics_serve);
}

const operation general_operations[] = {
    OPERATION(1, read_statistics),
    OPERATION(1, versions),
    OPERATION(1, names),
    OPERATION(2, use_error),
    OPERATION(4, destroy_error),
    OPERATION(2, use_blob),
    OPERATION(2, destroy_blob),
    OPERATION(2, set_log_callback),
    {0},
};
