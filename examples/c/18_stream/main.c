// SPDX-License-Identifier: Apache-2.0
// Blocks are loaded from host memory to a GPU on a stream of the engine, between its kernels. The host never waits.
#include <dlfcn.h>
#include <kvmem.h>
#include <kvmem/cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(kvmem_status status, kvmem_error **error)
{
    if (status >= 0) return;
    fprintf(stderr, "%s\n", kvmem_error_message(*error, NULL));
    exit(EXIT_FAILURE);
}

/* The driver, as an engine has it: current is the primary context of GPU 0. */
static void *driver;

static int call(const char *name, void *first, uintptr_t second)
{
    int (*function)(void *, uintptr_t);
    *(void **)&function = dlsym(driver, name);
    int result = function ? function(first, second) : -1;
    if (result != 0) {
        fprintf(stderr, "%s: %d\n", name, result);
        exit(EXIT_FAILURE);
    }
    return result;
}

static void start_driver(void)
{
    void *context;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    call("cuInit", NULL, 0);
    call("cuDevicePrimaryCtxRetain", &context, 0);
    call("cuCtxSetCurrent", context, 0);
}

/* Stands for an engine's launch of its attention kernel. */
static void launch_attention(struct CUstream_st *stream)
{
    (void)stream;
}

/* Between the work that is on the stream now and the work that is launched later: the host never waits. */
static void load_on_stream(kvmem_transfer *load, struct CUstream_st *stream, struct CUstream_st *other,
    kvmem_error **error)
{
    check(kvmem_transfer_submit_on_stream(load, NULL, stream, error), error);
    launch_attention(stream);
    check(kvmem_transfer_wait_on_stream(load, 0, other, error), error);
    launch_attention(other); /* another stream uses the blocks too */
}

int main(void)
{
    kvmem_layout_config config = {.struct_size = sizeof config, .num_blocks = 16, .num_layers = 4,
        .outer_dim = 2, .page_size = 16, .inner_dim = 8 * 128, .dtype_width = 2,
        .order = KVMEM_ORDER_LAYER_SEPARATE};
    kvmem_pinned_options pinned = {.struct_size = sizeof pinned};
    kvmem_device_options device = {.struct_size = sizeof device};
    kvmem_layout_options on_host = {.struct_size = sizeof on_host, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .pinned = &pinned};
    kvmem_layout_options on_gpu = {.struct_size = sizeof on_gpu, .config = &config,
        .source = KVMEM_LAYOUT_ALLOCATE, .device = &device};
    kvmem_block_pair pairs[] = {{.source = 3, .destination = 9}, {.source = 4, .destination = 2}};
    kvmem_submit_options move = {.struct_size = sizeof move, .pairs = pairs, .num_pairs = 2};
    struct CUstream_st *stream, *other;
    kvmem_layout *host, *gpu;
    kvmem_transfer *load;
    kvmem_block keys;
    uint32_t before, after;
    kvmem_error *error = NULL;

    start_driver();
    call("cuStreamCreate", &stream, 1);
    call("cuStreamCreate", &other, 1);
    check(kvmem_layout_build(&on_host, &host, &error), &error);
    check(kvmem_layout_build(&on_gpu, &gpu, &error), &error);
    check(kvmem_layout_get_block(host, 3, 0, 0, &keys, &error), &error);
    strcpy((char *)(uintptr_t)keys.address, "the keys of block 3");
    check(kvmem_layout_checksum(host, &pairs[0].source, 1, KVMEM_TIMEOUT_FOREVER, &before, &error), &error);

    check(kvmem_transfer_create(host, gpu, NULL, &load, &error), &error);
    check(kvmem_transfer_prepare(load, &move, &error), &error);
    load_on_stream(load, stream, other, &error);
    call("cuStreamSynchronize", other, 0);
    check(kvmem_transfer_wait(load, KVMEM_TIMEOUT_FOREVER, &error), &error);
    check(kvmem_layout_checksum(gpu, &pairs[0].destination, 1, KVMEM_TIMEOUT_FOREVER, &after, &error), &error);
    printf("block 9 on the GPU %s block 3 on the host\n", before == after ? "equals" : "differs from");

    kvmem_transfer_destroy(load);
    kvmem_layout_destroy(gpu);
    kvmem_layout_destroy(host);
    return before == after ? EXIT_SUCCESS : EXIT_FAILURE;
}
