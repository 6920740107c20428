// SPDX-License-Identifier: Apache-2.0
// Live owners that /proc does not show as usual: their main thread has ended, another user may not see them,
// or they are in another time namespace. They are not reported as lost, and share and open as usual.
#include "offer.h"
#include "kinds.h"
#include "opened.h"

#include <sys/mount.h>
#include <sys/prctl.h>

HOLDER_ROLE

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

/* ---- a main thread that has ended ---- */

static void *serve(void *socket) {
    holder_role((int)(intptr_t)socket);
    test_forget_error();
    exit(EXIT_SUCCESS);
}

/* Role: a holder whose main thread ends before the first request. */
ROLE(without_main_thread) {
    pthread_t server;
    CHECK_EQ(pthread_create(&server, NULL, serve, (void *)(intptr_t)socket), 0);
    pthread_exit(NULL);
}

/* Waits until /proc shows its main thread as a zombie. */
static void await_zombie(const peer *peer) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)peer->pid);
    for (char state = 0; state != 'Z';) {
        FILE *stat = fopen(path, "r");
        CHECK(stat != NULL);
        CHECK_EQ(fscanf(stat, "%*d (%*[^)]) %c", &state), 1);
        fclose(stat);
        sched_yield();
    }
}

static peer start_without_main_thread(void) {
    const peer started = peer_start("without_main_thread");
    await_zombie(&started);
    return started;
}

static const memory_kind kinds[] = {MEMORY_SYSTEM, MEMORY_PART, MEMORY_DISK};

TEST(an_owner_whose_main_thread_has_ended_lives) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        peer owner = start_without_main_thread();
        holder_make(&owner, kinds[i], NULL, 1);
        CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
        OWNED(kvmem_region) region = open_parcel(&parcel, 0);
        EXPECT_OK(kvmem_region_check_owner(region, ERR));
        memory_check(region, 1);
        peer_kill(&owner);
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(region, ERR));
    }
}

TEST(an_importer_whose_main_thread_has_ended_opens) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(offer, offer, kinds[i], NULL);
        peer importer = start_without_main_thread();
        CHECK_EQ(holder_open(&importer, &offer.parcel, 0), KVMEM_STATUS_OK);
        holder_check(&importer, HOLDING_OPENED, 1);
        CHECK_EQ(holder_check_owner(&importer), KVMEM_STATUS_OK);
        CHECK_EQ(holder_holders(&offer.owner, HOLDING_OWN).importers, 1);
        peer_kill(&importer);
        CHECK_EQ(holder_holders(&offer.owner, HOLDING_OWN).importers, 0);
    }
}

/* ---- /proc that hides the processes of other users ---- */

/* Role: a holder of another user, whose /proc shows only its own processes. */
ROLE(with_hidden_proc) {
    CHECK_EQ(unshare(CLONE_NEWNS), 0);
    CHECK_EQ(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    CHECK_EQ(mount("proc", "/proc", "proc", 0, "hidepid=2"), 0);
    CHECK_EQ(setgid(NOBODY_UID), 0);
    CHECK_EQ(setuid(NOBODY_UID), 0);
    CHECK_EQ(prctl(PR_SET_DUMPABLE, 1), 0); /* its own files in /proc are owned by the user again */
    CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)getppid());
    CHECK_EQ(access(path, F_OK), -1);
    holder_role(socket);
}

TEST(an_owner_that_proc_hides_lives) {
    require_other_users("an importer of another user");
    for (size_t i = 0; i < NUM(kinds); i++) {
        OPENED(offer, offer, kinds[i], NULL);
        CLEANUP(peer_finish) peer importer = peer_start("with_hidden_proc");
        CHECK_EQ(holder_open(&importer, &offer.parcel, 0), KVMEM_STATUS_OK);
        CHECK_EQ(holder_check_owner(&importer), KVMEM_STATUS_OK);
        peer_kill(&offer.owner);
        CHECK_EQ(holder_check_owner(&importer), KVMEM_STATUS_PEER_LOST);
        holder_check(&importer, HOLDING_OPENED, 1);
    }
}

/* ---- another time namespace ---- */

/* Role: a holder whose clock of the boot time is a day ahead. */
ROLE(in_time_namespace) {
    static const char offsets[] = "boottime 86400 0\n";
    if (unshare(CLONE_NEWTIME) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWTIME) != 0)
        FAIL("this machine allows no time namespace: %s", strerror(errno));
    const int file = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK_EQ(write(file, offsets, strlen(offsets)), (ssize_t)strlen(offsets));
    close(file);
    const pid_t child = fork(); /* the child is in that namespace, and has not called kvmem before */
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
        holder_role(socket);
        exit(EXIT_SUCCESS);
    }
    child_succeeds(child);
}

TEST(an_owner_in_another_time_namespace_lives) {
    for (size_t i = 0; i < NUM(kinds); i++) {
        peer owner = peer_start("in_time_namespace");
        holder_make(&owner, kinds[i], NULL, 1);
        CLEANUP(parcel_close) parcel parcel = holder_share(&owner, NULL);
        OWNED(kvmem_region) region = open_parcel(&parcel, 0);
        EXPECT_OK(kvmem_region_check_owner(region, ERR));
        OWNED(kvmem_region) again = open_parcel(&parcel, 0);
        CHECK_EQ(region_info(again).address, region_info(region).address);
        peer_finish(&owner);
        EXPECT(KVMEM_STATUS_PEER_LOST, kvmem_region_check_owner(region, ERR));
    }
}

/* ---- no /proc ---- */

static void share_without_proc(void) {
    CHECK_EQ(unshare(CLONE_NEWNS), 0);
    CHECK_EQ(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    CHECK_EQ(umount2("/proc", MNT_DETACH), 0);
    static unsigned char memory[4096];
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "/proc is not mounted", kvmem_region_create_system,
           REF(OPTIONS(kvmem_system_options, it.size = 65536, it.flags = KVMEM_SYSTEM_SHAREABLE)));
    REFUSE(KVMEM_STATUS_UNSUPPORTED, "/proc is not mounted", kvmem_region_adopt_host,
           REF(OPTIONS(kvmem_adopt_options, it.address = memory, it.size = sizeof(memory))));
}

TEST(a_missing_proc_is_not_reported_as_a_missing_file) {
    if (geteuid() != 0) SKIP("root: a mount namespace");
    in_a_forked_child(share_without_proc);
}
