// SPDX-License-Identifier: Apache-2.0
// A blob that is not there; blobs that are, with real bytes, are in nixl/metadata_test.c.
#include "harness.h"

TEST(no_blob_is_empty) {
    CHECK(kvmem_blob_data(NULL) == NULL);
    CHECK_EQ(kvmem_blob_size(NULL), 0);
    kvmem_blob_destroy(NULL);
}
