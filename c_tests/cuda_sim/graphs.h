// SPDX-License-Identifier: Apache-2.0
// Graphs: work of captured streams, to be done as often as they are launched.
#pragma once

#include "queue.h"

/* A graph, or an executable one. */
struct CUgraph_st {
    node node;
    work *works;
    size_t count;
    mark *last_launch; /* of an executable one; NULL before the first */
};

/* Puts a copy of the work at its end. */
void graph_add(graph *captured, const work *work);
