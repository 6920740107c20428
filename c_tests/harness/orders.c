// SPDX-License-Identifier: Apache-2.0
// Recursion: each number once at one place, and all orders of the others after it.
#include "orders.h"

#include "harness.h"

static void order_from(int place, int count, int *order, void (*run)(const int *order)) {
    if (place == count) {
        run(order);
        return;
    }
    for (int next = place; next < count; next++) {
        const int here = order[place];
        order[place] = order[next];
        order[next] = here;
        order_from(place + 1, count, order, run);
        order[next] = order[place];
        order[place] = here;
    }
}

void in_every_order(int count, void (*run)(const int *order)) {
    int order[ORDERS_MAX];
    CHECK(count <= ORDERS_MAX);
    for (int i = 0; i < count; i++) order[i] = i;
    order_from(0, count, order, run);
}
