// SPDX-License-Identifier: Apache-2.0
// Graphs: work of captured streams, which runs each time a graph is launched.
#pragma once

#include "queue.h"

/* A graph or an executable graph. */
struct CUgraph_st {
    node node;
    work *works;
    size_t count;
    record *last_launch; /* of an executable one; NULL before the first */
};

/* Adds a copy of the work at the end. */
void graph_add(graph *captured, const work *work);
