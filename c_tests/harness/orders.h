// SPDX-License-Identifier: Apache-2.0
// All orders of a few things.
#pragma once

#define ORDERS_MOST 8

/* Runs something for each order of the numbers below `count`, at most ORDERS_MOST. */
void in_every_order(int count, void (*run)(const int *order));
