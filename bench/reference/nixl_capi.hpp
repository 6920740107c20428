// SPDX-License-Identifier: Apache-2.0
// The functions of NIXL's C library that the reference calls, loaded at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nixl_capi {

// Handles are opaque. Each kind has its own type, so that the compiler rejects mixed-up ones.
using agent = struct agent_s *;
using params = struct params_s *;
using mem_list = struct mem_list_s *;
using backend = struct backend_s *;
using opt_args = struct opt_args_s *;
using reg_dlist = struct reg_dlist_s *;
using xfer_dlist = struct xfer_dlist_s *;
using prepared = struct prepared_s *;
using request = struct request_s *;
using notif_map = struct notif_map_s *;

using status = int;
constexpr status success = 0;
constexpr status in_progress = 1;

constexpr int memory_dram = 0;
constexpr int memory_vram = 1;
constexpr int memory_file = 4;
constexpr int sync_rw = 2;
constexpr int op_read = 0;
constexpr int op_write = 1;

struct agent_config {
    bool progress_thread;
    bool listen_thread;
    int listen_port;
    int thread_sync;
    unsigned num_workers;
    uint64_t progress_delay_us;
    uint64_t listen_delay_us;
    bool telemetry;
};

// name, parameters; each function is nixl_capi_<name> and returns a status.
#define NIXL_CAPI_FUNCTIONS(X)                                                                           \
    X(create_configured_agent, const char *name, const agent_config *config, agent *out)                 \
    X(destroy_agent, agent)                                                                              \
    X(get_plugin_params, agent, const char *plugin, mem_list *mems, params *out)                         \
    X(destroy_mem_list, mem_list)                                                                        \
    X(create_params, params *out)                                                                        \
    X(params_add, params, const char *key, const char *value)                                            \
    X(destroy_params, params)                                                                            \
    X(create_backend, agent, const char *plugin, params, backend *out)                                   \
    X(destroy_backend, backend)                                                                          \
    X(create_opt_args, opt_args *out)                                                                    \
    X(destroy_opt_args, opt_args)                                                                        \
    X(opt_args_add_backend, opt_args, backend)                                                           \
    X(opt_args_set_notif_msg, opt_args, const void *data, size_t size)                                   \
    X(opt_args_set_has_notif, opt_args, bool has_notif)                                                  \
    X(opt_args_set_skip_desc_merge, opt_args, bool skip)                                                 \
    X(create_reg_dlist, int memory, reg_dlist *out)                                                      \
    X(destroy_reg_dlist, reg_dlist)                                                                      \
    X(reg_dlist_add_desc, reg_dlist, uintptr_t address, size_t size, uint64_t device, const void *data,  \
      size_t data_size)                                                                                  \
    X(register_mem, agent, reg_dlist, opt_args)                                                          \
    X(deregister_mem, agent, reg_dlist, opt_args)                                                        \
    X(get_local_md, agent, void **data, size_t *size)                                                    \
    X(load_remote_md, agent, const void *data, size_t size, char **name)                                 \
    X(invalidate_remote_md, agent, const char *name)                                                     \
    X(create_xfer_dlist, int memory, xfer_dlist *out)                                                    \
    X(destroy_xfer_dlist, xfer_dlist)                                                                    \
    X(xfer_dlist_add_desc, xfer_dlist, uintptr_t address, size_t size, uint64_t device)                  \
    X(create_xfer_req, agent, int op, xfer_dlist local, xfer_dlist remote, const char *name,             \
      request *out, opt_args)                                                                            \
    X(prep_xfer_dlist, agent, const char *name, xfer_dlist, prepared *out, opt_args)                     \
    X(release_xfer_dlist_handle, agent, prepared)                                                        \
    X(make_xfer_req, agent, int op, prepared local, const int *local_ids, size_t num_local,              \
      prepared remote, const int *remote_ids, size_t num_remote, request *out, opt_args)                 \
    X(post_xfer_req, agent, request, opt_args)                                                           \
    X(get_xfer_status, agent, request)                                                                   \
    X(release_xfer_req, agent, request)                                                                  \
    X(destroy_xfer_req, request)                                                                         \
    X(gen_notif, agent, const char *name, const void *data, size_t size, opt_args)                       \
    X(create_notif_map, notif_map *out)                                                                  \
    X(destroy_notif_map, notif_map)                                                                      \
    X(get_notifs, agent, notif_map, opt_args)                                                            \
    X(notif_map_size, notif_map, size_t *size)                                                           \
    X(notif_map_clear, notif_map)

struct library {
#define NIXL_CAPI_MEMBER(name, ...) status (*name)(__VA_ARGS__);
    NIXL_CAPI_FUNCTIONS(NIXL_CAPI_MEMBER)
#undef NIXL_CAPI_MEMBER
};

// Loads $KVMEM_NIXL_LIBRARY, or the loader's default if it is not set, once. Throws if the library or a function is
// missing.
const library &load();

} // namespace nixl_capi
