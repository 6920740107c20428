// SPDX-License-Identifier: Apache-2.0
// The part of the FUSE protocol that one regular file needs, in a separate process: a process that waits for
// a file that it serves itself cannot even be killed.
#include "served_file.h"

#include "parcel.h"

#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/uio.h>

enum { SERVED_OPEN = 1, SERVED_STALL_AFTER, SERVED_WITHHOLD_BYTES, SERVED_STALLS, SERVED_GO_ON };

/* More than the kernel has in flight: one for each thread that reads, and those that it reads ahead. */
#define MAX_READS 256

typedef struct withheld_read {
    uint64_t request;
    uint32_t size;
} withheld_read;

typedef struct served_file {
    int device;
    pthread_mutex_t lock;
    uint64_t size;
    uint64_t replies_left; /* number of replies with attributes until the server stalls */
    uint64_t waiting;      /* the request that waits for attributes; 0 for none */
    bool withholds_bytes;
    withheld_read reads[MAX_READS];
    size_t num_reads;
} served_file;

#define NODE 2
#define MAX_BYTES (64 * 1024)

static void reply(const served_file *file, uint64_t request, int error, const void *body, size_t size) {
    const struct fuse_out_header head = {(uint32_t)(sizeof(head) + size), -error, request};
    const struct iovec parts[] = {{(void *)(uintptr_t)&head, sizeof(head)}, {(void *)(uintptr_t)body, size}};
    if (writev(file->device, parts, size > 0 ? 2 : 1) < 0) {
        CHECK_EQ(errno, ENOENT); /* the requesting thread was interrupted */
    }
}

/* Valid for zero seconds, so that each fstat requests them. */
static struct fuse_attr attributes(const served_file *file, uint64_t node) {
    struct fuse_attr found = {.ino = node, .nlink = 1, .blksize = 4096};
    found.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0600;
    found.size = node == FUSE_ROOT_ID ? 0 : file->size;
    return found;
}

static void send_attributes(const served_file *file, uint64_t request, uint64_t node) {
    const struct fuse_attr_out out = {.attr = attributes(file, node)};
    reply(file, request, 0, &out, sizeof(out));
}

static void get_attributes(served_file *file, const struct fuse_in_header *asked) {
    pthread_mutex_lock(&file->lock);
    const bool tells = asked->nodeid == FUSE_ROOT_ID || file->replies_left > 0;
    if (!tells) file->waiting = asked->unique;
    else if (asked->nodeid != FUSE_ROOT_ID) file->replies_left--;
    pthread_mutex_unlock(&file->lock);
    if (tells) send_attributes(file, asked->unique, asked->nodeid);
}

/* The kernel requests at most so many at a time. */
static const unsigned char zeroes[128 * 1024];

static void read_bytes(served_file *file, const struct fuse_in_header *asked) {
    const struct fuse_read_in *read = (const struct fuse_read_in *)(const void *)(asked + 1);
    CHECK(read->size <= sizeof(zeroes));
    pthread_mutex_lock(&file->lock);
    const bool is_withheld = file->withholds_bytes;
    if (is_withheld) {
        CHECK(file->num_reads < MAX_READS);
        file->reads[file->num_reads++] = (withheld_read){asked->unique, read->size};
    }
    pthread_mutex_unlock(&file->lock);
    if (!is_withheld) reply(file, asked->unique, 0, zeroes, read->size);
}

static void serve_one(served_file *file, const struct fuse_in_header *asked) {
    const struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
                                       .minor = 31,
                                       .max_readahead = MAX_BYTES,
                                       .max_background = 4,
                                       .congestion_threshold = 4,
                                       .max_write = 4096,
                                       .time_gran = 1};
    const struct fuse_entry_out entry = {.nodeid = NODE, .attr = attributes(file, NODE)};
    const struct fuse_open_out opened = {.fh = 1};
    switch (asked->opcode) {
    case FUSE_INIT: reply(file, asked->unique, 0, &init, sizeof(init)); break;
    case FUSE_LOOKUP: reply(file, asked->unique, 0, &entry, sizeof(entry)); break;
    case FUSE_OPEN: reply(file, asked->unique, 0, &opened, sizeof(opened)); break;
    case FUSE_GETATTR: get_attributes(file, asked); break;
    case FUSE_READ: read_bytes(file, asked); break;
    case FUSE_RELEASE: reply(file, asked->unique, 0, NULL, 0); break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break; /* requests without a reply */
    default:
        reply(file, asked->unique, ENOSYS, NULL, 0);
    }
}

/* Runs until the process ends. */
static void *serve(void *argument) {
    served_file *file = argument;
    static _Alignas(8) unsigned char bytes[MAX_BYTES];
    for (;;) {
        const ssize_t size = read(file->device, bytes, sizeof(bytes));
        if (size < 0 && (errno == ENODEV || errno == ECONNABORTED)) {
            return NULL; /* no process has the file open any more */
        }
        if (size >= (ssize_t)sizeof(struct fuse_in_header)) {
            serve_one(file, (const struct fuse_in_header *)(const void *)bytes);
        } else {
            CHECK(size < 0);
            if (errno != EINTR && errno != ENOENT && errno != EAGAIN) {
                FAIL("read a request for a served file: %s", strerror(errno));
            }
        }
    }
}

/* Mounts the file system, and opens its file. */
static int open_served(served_file *file) {
    file->device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    CHECK(file->device >= 0);
    scratch directory = scratch_create(temporary_directory());
    char options[128];
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", file->device);
    CHECK_EQ(mount("kvmem_test", directory.path, "fuse", MS_NOSUID | MS_NODEV, options), 0);
    pthread_t server;
    CHECK_EQ(pthread_create(&server, NULL, serve, file), 0);
    CHECK_EQ(pthread_detach(server), 0);
    const int fd = open(scratch_file(&directory, "file"), O_RDWR | O_CLOEXEC);
    const int error = errno;
    CHECK_EQ(umount2(directory.path, MNT_DETACH), 0); /* open files stay usable */
    scratch_remove(&directory);
    if (fd < 0) FAIL("open the served file: %s", strerror(error));
    return fd;
}

/* Sends the file away: this process must not have it open when it ends. */
static void send_away(int socket, int fd) {
    static unsigned char byte;
    const parcel parcel = {.bytes = {&byte, sizeof(byte)}, .fds = &fd, .num_fds = 1};
    parcel_send(socket, &parcel);
    close(fd);
}

static void resume(served_file *file) {
    pthread_mutex_lock(&file->lock);
    const uint64_t waiting = file->waiting;
    file->waiting = 0;
    file->replies_left = UINT64_MAX;
    file->withholds_bytes = false;
    const size_t num_reads = file->num_reads;
    file->num_reads = 0;
    pthread_mutex_unlock(&file->lock);
    if (waiting != 0) send_attributes(file, waiting, NODE);
    for (size_t i = 0; i < num_reads; i++)
        reply(file, file->reads[i].request, 0, zeroes, file->reads[i].size);
}

static void serve_order(served_file *file, int socket, uint32_t tag, uint64_t number) {
    uint64_t stalls = 0;
    switch (tag) {
    case SERVED_OPEN:
        file->size = number;
        send_away(socket, open_served(file));
        return;
    case SERVED_STALL_AFTER:
        pthread_mutex_lock(&file->lock);
        file->replies_left = number;
        pthread_mutex_unlock(&file->lock);
        break;
    case SERVED_WITHHOLD_BYTES:
        pthread_mutex_lock(&file->lock);
        file->withholds_bytes = true;
        pthread_mutex_unlock(&file->lock);
        break;
    case SERVED_STALLS:
        pthread_mutex_lock(&file->lock);
        stalls = file->waiting != 0 || file->num_reads > 0;
        pthread_mutex_unlock(&file->lock);
        break;
    case SERVED_GO_ON: resume(file); break;
    default: FAIL("no such request: %u", tag);
    }
    frame_send(socket, tag, &stalls, sizeof(stalls));
}

void served_file_role(int socket) {
    static served_file file = {.device = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .replies_left = UINT64_MAX};
    uint32_t tag = 0;
    for (uint64_t number = 0; frame_next_into(socket, &tag, &number, sizeof(number));)
        serve_order(&file, socket, tag, number);
}

void require_served_files(void) {
    if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0)
        SKIP("a file that a process serves needs root and /dev/fuse");
}

peer served_file_start(uint64_t size, int *fd) {
    const peer server = peer_start("served_file");
    frame_send(server.socket, SERVED_OPEN, &size, sizeof(size));
    CLEANUP(parcel_close) parcel parcel = parcel_receive(server.socket);
    CHECK_EQ(parcel.num_fds, 1);
    *fd = fcntl(parcel.fds[0], F_DUPFD_CLOEXEC, 0);
    CHECK(*fd >= 0);
    return server;
}

static uint64_t ask(const peer *server, uint32_t tag, uint64_t number) {
    uint64_t reply_value = 0;
    frame_send(server->socket, tag, &number, sizeof(number));
    frame_expect_into(server->socket, tag, &reply_value, sizeof(reply_value));
    return reply_value;
}

void served_file_stall_after(const peer *server, uint64_t replies) {
    ask(server, SERVED_STALL_AFTER, replies);
}

void served_file_withhold_bytes(const peer *server) { ask(server, SERVED_WITHHOLD_BYTES, 0); }

bool served_file_stalls(const peer *server) { return ask(server, SERVED_STALLS, 0) != 0; }

void served_file_resume(const peer *server) { ask(server, SERVED_GO_ON, 0); }
