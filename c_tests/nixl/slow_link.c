// SPDX-License-Identifier: Apache-2.0
#include "slow_link.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/* One direction of a connection. */
typedef struct relay {
    slow_link *link;
    int from;
    int to;
} relay;

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static bool is_cut(const slow_link *link) {
    struct pollfd cut = {.fd = link->cut, .events = POLLIN};
    return poll(&cut, 1, 0) > 0;
}

/* Waits for bytes. Returns their number; 0 if the link is cut or the connection has ended. */
static ssize_t receive(const relay *relay, char *bytes, size_t size) {
    struct pollfd fds[] = {{.fd = relay->from, .events = POLLIN}, {.fd = relay->link->cut, .events = POLLIN}};
    while (poll(fds, NUM(fds), -1) < 0 && errno == EINTR) continue;
    return fds[1].revents != 0 ? 0 : recv(relay->from, bytes, size, 0);
}

/* When one direction ends, the other one ends too. */
static void *pass_on(void *argument) {
    const relay *relay = argument;
    char bytes[65536];
    ssize_t size;
    while ((size = receive(relay, bytes, sizeof(bytes))) > 0) {
        const unsigned delay = relay->link->delay_ms;
        nanosleep(&(struct timespec){.tv_sec = delay / 1000, .tv_nsec = (long)(delay % 1000) * 1000000},
                  NULL);
        if (send(relay->to, bytes, (size_t)size, MSG_NOSIGNAL) != size) break;
    }
    shutdown(relay->from, SHUT_RDWR);
    shutdown(relay->to, SHUT_RDWR);
    return NULL;
}

/* Both directions, until one side closes the connection. */
static void *serve_connection(void *argument) {
    const relay first = *(relay *)argument;
    free(argument);
    relay back = {first.link, first.to, first.from};
    relay forth = first;
    pthread_t other;
    CHECK_EQ(pthread_create(&other, NULL, pass_on, &back), 0);
    pass_on(&forth);
    CHECK_EQ(pthread_join(other, NULL), 0);
    close(first.from);
    close(first.to);
    return NULL;
}

static void *serve(void *argument) {
    slow_link *link = argument;
    pthread_t connections[64];
    size_t count = 0;
    int accepted;
    while ((accepted = accept4(link->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (is_cut(link)) {
            close(accepted);
            continue;
        }
        const int target = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const struct sockaddr_in address = loopback(link->target_port);
        CHECK(target >= 0 && count < NUM(connections));
        CHECK_EQ(connect(target, (const struct sockaddr *)&address, sizeof(address)), 0);
        relay *pair = test_allocate(sizeof(*pair));
        *pair = (relay){link, accepted, target};
        CHECK_EQ(pthread_create(&connections[count++], NULL, serve_connection, pair), 0);
    }
    for (size_t i = 0; i < count; i++) CHECK_EQ(pthread_join(connections[i], NULL), 0);
    return NULL;
}

void slow_link_open(slow_link *link, int target_port, unsigned delay_ms) {
    *link = (slow_link){.target_port = target_port, .delay_ms = delay_ms, .cut = eventfd(0, EFD_CLOEXEC)};
    CHECK(link->cut >= 0);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    link->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(link->listener >= 0);
    CHECK_EQ(bind(link->listener, (const struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_EQ(listen(link->listener, 16), 0);
    CHECK_EQ(getsockname(link->listener, (struct sockaddr *)&address, &size), 0);
    link->port = ntohs(address.sin_port);
    CHECK_EQ(pthread_create(&link->thread, NULL, serve, link), 0);
}

void slow_link_cut(slow_link *link) { CHECK_EQ(eventfd_write(link->cut, 1), 0); }

void slow_link_mend(slow_link *link) {
    eventfd_t value;
    CHECK_EQ(eventfd_read(link->cut, &value), 0);
}

void slow_link_close(slow_link *link) {
    shutdown(link->listener, SHUT_RDWR); /* ends accept */
    CHECK_EQ(pthread_join(link->thread, NULL), 0);
    CHECK_EQ(close(link->listener), 0);
    CHECK_EQ(close(link->cut), 0);
}
