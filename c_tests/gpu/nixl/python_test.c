// SPDX-License-Identifier: Apache-2.0
// NIXL's Python client with PyTorch tensors in GPU memory, over the transport that UCX selects between two
// processes on one GPU. python_tcp_test.c runs the same cases over TCP.
#include "../../nixl/python_cases.h"
#include "caller_context.h"

#ifndef OVER_TCP
#define OVER_TCP 0
#endif

static kvmem_status create(uint64_t size, kvmem_region **region, kvmem_error **error) {
    return kvmem_region_create_device(REF(OPTIONS(kvmem_device_options, it.size = size)), region, error);
}

static void write_first(uint64_t to, const void *from, size_t size) { write_device(0, to, from, size); }

static void read_first(void *to, uint64_t from, size_t size) { read_device(0, to, from, size); }

const python_memory python_memory_of_both = {
    .name = "VRAM", .type = KVMEM_MEMORY_VRAM, .create = create, .write = write_first, .read = read_first,
    .package = "torch"};

static const char *lacks_gpu_or_client(void) {
    const char *gpu = lacks_real_gpu();
    return gpu == NULL ? python_lacks_client() : gpu;
}
REQUIRES(lacks_gpu_or_client)

int main(int argc, char **argv) {
    if (OVER_TCP) {
        /* Set before UCX reads them; the client inherits them. cuda_copy copies between GPU memory and
           TCP. */
        setenv("UCX_TLS", "tcp,self,cuda_copy", 1);
        setenv("UCX_NET_DEVICES", "lo", 1);
    }
    return caller_context_main(argc, argv, test_registered());
}
