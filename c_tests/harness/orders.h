// SPDX-License-Identifier: Apache-2.0
// All orders of a few numbers.
#pragma once

#define ORDERS_MAX 8

/* Calls `run` for each order of the numbers below `count`, at most ORDERS_MAX. */
void in_every_order(int count, void (*run)(const int *order));
