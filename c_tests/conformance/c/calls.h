/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that other files than calls.c have. */
#ifndef CALLS_H
#define CALLS_H

#include "world.h"

#define DECLARE(name) kvmem_status name(struct step *step, kvmem_error **error)

/* blocks.c */
DECLARE(fill_block);
DECLARE(expect_block);

/* transfers.c */
DECLARE(queue_create);
DECLARE(queue_poll);
DECLARE(queue_wait);
DECLARE(transfer_create);
DECLARE(transfer_start);
DECLARE(transfer_submit);
DECLARE(transfer_cancel);
DECLARE(transfer_submit_pairs);
DECLARE(transfer_poll);
DECLARE(transfer_wait);
DECLARE(transfer_wait_layers);
DECLARE(transfer_get_layers);
DECLARE(transfer_get_info);
DECLARE(transfer_explain);

/* shares.c */
DECLARE(share_create_region);
DECLARE(share_create_layout);
DECLARE(share_create_received);
DECLARE(share_get_info);
DECLARE(share_open_region);
DECLARE(share_open_layout);
DECLARE(broker_create);
DECLARE(broker_publish);
DECLARE(broker_grant);
DECLARE(broker_unpublish);
DECLARE(broker_get_info);
DECLARE(share_fetch);

#undef DECLARE

#endif
