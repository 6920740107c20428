/* SPDX-License-Identifier: Apache-2.0 */
#include <kvmem.h>
#include <kvmem/cuda.h>
#include <kvmem/directory.h>
#include <kvmem/nixl_raw.h>
#include <kvmem/statistics.h>
#include <kvmem/store.h>
