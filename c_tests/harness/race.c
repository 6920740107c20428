// SPDX-License-Identifier: Apache-2.0
// Functions that Rust's ThreadSanitizer calls and the runtime of an older gcc does not have. The runtime
// intercepts the functions called here, so it still sees the accesses.
#include <stddef.h>
#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int byte, size_t size);

void *__tsan_memcpy(void *to, const void *from, size_t size) { return memcpy(to, from, size); }

void *__tsan_memmove(void *to, const void *from, size_t size) { return memmove(to, from, size); }

void *__tsan_memset(void *to, int byte, size_t size) { return memset(to, byte, size); }
