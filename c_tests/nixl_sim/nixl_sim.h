// SPDX-License-Identifier: Apache-2.0
// The test's interface of the stand-in for NIXL: calls that fail or wait on request, requests that stay in
// flight, and counts. A test finds these functions with dlsym in the libnixl_capi.so that the library under
// test has loaded.
#pragma once

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* The nth registration from now (1 is the next one) fails, and has no effect. 0: none. */
void nixl_sim_fail_register(uint64_t nth);
/* The same for deregistrations: the memory stays registered. */
void nixl_sim_fail_deregister(uint64_t nth);
/* The same for checks whether metadata of a peer is loaded. */
void nixl_sim_fail_check(uint64_t nth);
/* The same for posts of requests, for status calls on requests in flight, and for releases of requests. */
void nixl_sim_fail_post(uint64_t nth);
/* Of the posts of requests that write. */
void nixl_sim_fail_write(uint64_t nth);
void nixl_sim_fail_status(uint64_t nth);
void nixl_sim_fail_release(uint64_t nth);

/* Calls that can be blocked. */
enum {
    NIXL_SIM_REGISTER,
    NIXL_SIM_DEREGISTER,
    NIXL_SIM_POST,
    NIXL_SIM_DESTROY,       /* of an agent */
    NIXL_SIM_CREATE,        /* of an agent */
    NIXL_SIM_BACKEND,       /* creating one */
    NIXL_SIM_PLUGINS,       /* listing them */
    NIXL_SIM_PARAMETERS,    /* those of a backend */
    NIXL_SIM_METADATA,      /* the agent's own */
    NIXL_SIM_LOAD,
    NIXL_SIM_INVALIDATE,
    NIXL_SIM_CHECK,         /* whether metadata of a peer is loaded */
    NIXL_SIM_NOTIFY,
    NIXL_SIM_TAKE,          /* notifications */
    NIXL_SIM_QUERY,
    NIXL_SIM_CONNECT,
    NIXL_SIM_PREPARE,       /* a list */
    NIXL_SIM_RELEASE_LIST,
    NIXL_SIM_REQUEST,       /* creating one */
    NIXL_SIM_STATUS,
    NIXL_SIM_RELEASE,       /* a request */
    NIXL_SIM_CHOSEN,        /* the backend of a request */
    NIXL_SIM_ESTIMATE,
    NIXL_SIM_MEASURED,      /* the telemetry of a request */
    NIXL_SIM_VIEW,
    NIXL_SIM_RELEASE_VIEW,
    NIXL_SIM_NUM_CALLS
};
/* From here on calls of this kind wait until nixl_sim_go. */
void nixl_sim_hold(int call);
/* The next one, whichever agent makes it, waits until nixl_sim_go, and those after it do not wait. */
void nixl_sim_hold_next(int call);
void nixl_sim_go(void);
/* At each call from here on, `is_held` is asked with the name of its kind, and with the lock of the stand-in held: if it returns
   true, the call waits until nixl_sim_go. */
void nixl_sim_ask(int (*is_held)(const char *name));
/* They wait forever. */
void nixl_sim_hold_forever(int call);
/* Number of waiting calls. */
uint64_t nixl_sim_waiting(void);

/* Which requests stay in flight once posted; the post completes the others. Setting it completes those in
   flight that do not stay. */
enum { NIXL_SIM_PENDING_NONE, NIXL_SIM_PENDING_ALL, NIXL_SIM_PENDING_READS };
void nixl_sim_set_pending(int which);
/* Completes one that is in flight, with the next status call. */
void nixl_sim_complete_one(void);

/* So many requests move their bytes when they complete; others move nothing, as all do at first. Both agents
   are in this process. */
void nixl_sim_set_moving(uint64_t requests);

/* The next request that moves at least so many bytes changes one of them on the way, or moves none. */
enum { NIXL_SIM_SPOIL_NONE, NIXL_SIM_SPOIL_DAMAGE, NIXL_SIM_SPOIL_SKIP };
void nixl_sim_spoil_next(int how, uint64_t size);

typedef struct nixl_sim_requests {
    uint64_t alive;     /* created, and not released */
    uint64_t in_flight; /* posted, not completed, not failed */
    uint64_t posts;     /* calls so far */
    uint64_t reposts;   /* of these, posts of a request that had failed */
    /* moved by requests of more than 4096 bytes, which reads of a control block are not */
    uint64_t bytes;
    int last_poster;    /* the thread that made the last of them */
} nixl_sim_requests;
nixl_sim_requests nixl_sim_get_requests(void);

/* The next metadata that is read, of any agent, is of an agent with this name, in a form that kvmem does not
   read and the stand-in loads. */
void nixl_sim_disguise(const char *name);
/* Number of backends of all agents with which the span that starts here is registered. */
uint64_t nixl_sim_registered(uint64_t address);
/* The plugin whose backend NIXL reports for each request; NULL, the default: it reports none. */
void nixl_sim_choose_backend(const char *plugin);
typedef struct nixl_sim_views {
    uint64_t alive;        /* memory views that were created, and not released */
    uint64_t released;
    uint64_t alive_at_end; /* of these, when an agent was destroyed */
} nixl_sim_views;
nixl_sim_views nixl_sim_get_views(void);
/* What a query for an object returns; at first it fails. */
enum { NIXL_SIM_QUERY_FAILS, NIXL_SIM_QUERY_MISSING, NIXL_SIM_QUERY_EXISTS };
void nixl_sim_set_query(int outcome);
/* Number of queries of the backends of a plugin. */
uint64_t nixl_sim_queries(const char *plugin);
/* Number of notifications that agents have sent. */
uint64_t nixl_sim_notifications_sent(void);
/* Notifications arrive at the agent of this process that has the name of their receiver, rather than
   nowhere. */
void nixl_sim_set_routing(int routes);
/* Number of calls for notifications, and whether these fail from here on: those that were delivered arrive
   all the same, as if another backend had received them. */
uint64_t nixl_sim_notification_polls(void);
void nixl_sim_set_notifications_fail(int fail);
/* The next of these calls returns so many notifications of agent 'far'. Each begins with its number. */
void nixl_sim_deliver(uint64_t first, uint64_t count, size_t size);
/* Each of them is from an agent of its own, 'far N'. */
void nixl_sim_deliver_from_each(uint64_t first, uint64_t count);
/* The steps that finding senders by position took, as NIXL counts from the first one. */
uint64_t nixl_sim_steps(void);

#pragma GCC visibility pop
