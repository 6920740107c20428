// SPDX-License-Identifier: Apache-2.0
// An outdated libnixl_capi.so: it loads, under the right name, and lacks most functions.

int nixl_capi_is_stub(void);

int nixl_capi_is_stub(void) { return 0; }
