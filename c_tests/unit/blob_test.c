// SPDX-License-Identifier: Apache-2.0
// NULL as a blob. Blobs with bytes are tested in nixl/metadata_test.c.
#include "harness.h"

TEST(a_null_blob_is_empty) {
    CHECK(kvmem_blob_data(NULL) == NULL);
    CHECK_EQ(kvmem_blob_size(NULL), 0);
    kvmem_blob_destroy(NULL);
}
