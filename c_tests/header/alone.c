/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing but kvmem.h, twice: it needs no other header before it, and guards itself. */
#include "kvmem.h"
#include "kvmem.h"
