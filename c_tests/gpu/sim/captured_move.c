// SPDX-License-Identifier: Apache-2.0
// Driver calls of the engine are exempt, so that only calls of kvmem are counted and fail.
#include "captured_move.h"

#include "control.h"
#include "driver.h"

#define LAUNCHES 2

static void begin_capture(void) {
    SIM(sim_exempt_thread(true));
    CU(cuStreamBeginCapture_v2(moves_stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
    SIM(sim_exempt_thread(false));
}

/* Ends the capture. Returns the executable graph if is_whole; otherwise destroys the graph and returns
   NULL. */
static CUgraphExec end_capture(bool is_whole) {
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    SIM(sim_exempt_thread(true));
    enter_device(0);
    if (is_whole) {
        CU(cuStreamEndCapture(moves_stream(), &graph));
        CU(cuGraphInstantiateWithFlags(&executable, graph, 0));
        CU(cuGraphDestroy(graph));
    } else if (driver_get()->cuStreamEndCapture(moves_stream(), &graph) == CUDA_SUCCESS) {
        CU(cuGraphDestroy(graph));
    }
    leave_device(0);
    SIM(sim_exempt_thread(false));
    return executable;
}

static void launch(const contents *contents, CUgraphExec graph) {
    contents_fill(contents);
    SIM(sim_exempt_thread(true));
    enter_device(0);
    CU(cuGraphLaunch(graph, moves_stream()));
    CU(cuStreamSynchronize(moves_stream()));
    leave_device(0);
    SIM(sim_exempt_thread(false));
    contents_check_moved(contents);
}

static void destroy(CUgraphExec graph) {
    SIM(sim_exempt_thread(true));
    CU(cuGraphExecDestroy(graph));
    SIM(sim_exempt_thread(false));
}

kvmem_status move_by_graph(const kvmem_layout *source, const kvmem_layout *destination, uint32_t path,
                           start start) {
    (void)start;
    moving moving;
    kvmem_status status = create_move(source, destination, path, 0, &moving);
    if (status == KVMEM_STATUS_OK) {
        begin_capture();
        status = kvmem_transfer_submit_on_stream(moving.transfer, NULL, moves_stream(), ERR);
        const CUgraphExec graph = end_capture(status == KVMEM_STATUS_OK);
        for (int i = 0; i < LAUNCHES && graph != NULL; i++) launch(&moving.contents, graph);
        if (graph != NULL) destroy(graph);
    }
    kvmem_transfer_destroy(moving.transfer);
    return status;
}
