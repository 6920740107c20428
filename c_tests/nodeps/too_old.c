// SPDX-License-Identifier: Apache-2.0
// A libnixl_capi.so of long ago: it loads, under the right name, and has next to nothing in it.

int nixl_capi_is_stub(void);

int nixl_capi_is_stub(void) { return 0; }
