/* SPDX-License-Identifier: Apache-2.0 */
#include <kvmem.h>
#include <kvmem_cuda.h>
#include <kvmem_nixl.h>
