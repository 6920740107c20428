// SPDX-License-Identifier: Apache-2.0
#include "s3_wire.h"

#include "harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { MAX_HEAD = 16 << 10, MAX_OBJECTS = 64 };

typedef struct object {
    char key[S3_MAX_KEY];
    unsigned char *bytes;
    size_t size;
} object;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static object objects[MAX_OBJECTS];
static _Atomic(s3_send *) current;

void s3_set_send(s3_send *sends) { current = sends; }

bool s3_send_bytes(int client, const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    while (size > 0) {
        const ssize_t sent = send(client, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

bool s3_send_text(int client, const char *text) { return s3_send_bytes(client, text, strlen(text)); }

bool s3_send_reply(int client, const s3_request *request, const s3_reply *reply) {
    (void)request;
    return s3_send_text(client, reply->head) && s3_send_bytes(client, reply->body, reply->size);
}

/* ---- objects ---- */

/* That with a key, or an unused one. */
static object *find(const char *key) {
    for (object *each = objects; each < objects + MAX_OBJECTS; each++)
        if (each->bytes == NULL || strcmp(each->key, key) == 0) return each;
    FAIL("more than %d objects", MAX_OBJECTS);
}

/* Takes the bytes. */
static void keep(const char *key, unsigned char *bytes, size_t size) {
    CHECK_EQ(pthread_mutex_lock(&lock), 0);
    object *own = find(key);
    free(own->bytes);
    *own = (object){.bytes = bytes, .size = size};
    snprintf(own->key, sizeof(own->key), "%s", key);
    CHECK_EQ(pthread_mutex_unlock(&lock), 0);
}

/* All of an object, or the part that a header names. */
static void read_object(const char *key, const char *range, s3_reply *reply) {
    size_t first = 0, last = SIZE_MAX;
    const bool is_part = range != NULL && sscanf(range, "bytes=%zu-%zu", &first, &last) >= 1;
    CHECK_EQ(pthread_mutex_lock(&lock), 0);
    const object *own = find(key);
    if (own->bytes == NULL || first >= own->size) {
        static const char missing[] = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code></Error>";
        reply->size = sizeof(missing) - 1;
        reply->body = test_allocate(reply->size);
        memcpy(reply->body, missing, reply->size);
        snprintf(reply->head, sizeof(reply->head), "HTTP/1.1 404 Not Found\r\nContent-Type: application/xml\r\nContent-Length: %zu\r\n\r\n",
                 reply->size);
    } else {
        if (last >= own->size) last = own->size - 1;
        CHECK(first <= last);
        reply->size = last - first + 1;
        reply->body = test_allocate(reply->size);
        memcpy(reply->body, own->bytes + first, reply->size);
        snprintf(reply->head, sizeof(reply->head),
                 "HTTP/1.1 %s\r\nContent-Type: binary/octet-stream\r\nETag: \"1\"\r\nContent-Range: bytes %zu-%zu/%zu\r\nContent-Length: %zu\r\n\r\n",
                 is_part ? "206 Partial Content" : "200 OK", first, last, own->size, reply->size);
    }
    CHECK_EQ(pthread_mutex_unlock(&lock), 0);
}

/* ---- connections ---- */

/* Bytes of a connection that were received and not used. */
typedef struct input {
    int client;
    char bytes[MAX_HEAD + 1];
    size_t size;
} input;

static bool receive(input *input) {
    if (input->size == MAX_HEAD) return false;
    const ssize_t got = recv(input->client, input->bytes + input->size, MAX_HEAD - input->size, 0);
    if (got <= 0) return false;
    input->size += (size_t)got;
    input->bytes[input->size] = '\0';
    return true;
}

static void use(input *input, size_t size) {
    memmove(input->bytes, input->bytes + size, input->size - size + 1);
    input->size -= size;
}

/* The value of a header, or NULL. */
static const char *header(const char *head, const char *name) {
    const char *found = strcasestr(head, TEXT("\r\n%s:", name));
    if (found == NULL) return NULL;
    found += strlen(name) + 3;
    return found + strspn(found, " ");
}

static bool receive_body(input *input, unsigned char *body, size_t size) {
    const size_t here = input->size < size ? input->size : size;
    memcpy(body, input->bytes, here);
    use(input, here);
    for (size_t have = here; have < size;) {
        const ssize_t got = recv(input->client, body + have, size - have, 0);
        if (got <= 0) return false;
        have += (size_t)got;
    }
    return true;
}

/* Serves one request. Returns whether another one may follow. */
static bool serve_one(input *input) {
    char *end = NULL;
    while ((end = input->size > 0 ? strstr(input->bytes, "\r\n\r\n") : NULL) == NULL)
        if (!receive(input)) return false;
    char head[MAX_HEAD + 1];
    const size_t head_size = (size_t)(end + 4 - input->bytes);
    memcpy(head, input->bytes, head_size);
    head[head_size] = '\0';
    use(input, head_size);
    s3_request request = {0};
    CHECK_EQ(sscanf(head, "%7s /blocks/%127[^? ]", request.method, request.key), 2);
    const char *length = header(head, "Content-Length");
    const size_t size = length != NULL ? strtoul(length, NULL, 10) : 0;
    CHECK(header(head, "Transfer-Encoding") == NULL);
    if (header(head, "Expect") != NULL && !s3_send_text(input->client, "HTTP/1.1 100 Continue\r\n\r\n")) return false;
    unsigned char *body = test_allocate(size + 1);
    if (!receive_body(input, body, size)) {
        free(body);
        return false;
    }
    s3_reply reply = {.head = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\n\r\n"};
    if (strcmp(request.method, "PUT") == 0) {
        keep(request.key, body, size);
    } else {
        free(body);
        read_object(request.key, header(head, "Range"), &reply);
        if (strcmp(request.method, "HEAD") == 0) reply.size = 0;
    }
    const bool goes_on = current(input->client, &request, &reply);
    free(reply.body);
    return goes_on;
}

static void *serve_client(void *client) {
    input input = {.client = (int)(intptr_t)client};
    while (serve_one(&input)) {
    }
    close(input.client);
    return NULL;
}

static void *serve_all(void *listener) {
    for (;;) {
        const int client = accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(client >= 0);
        /* A head that is sent alone delays the body. */
        CHECK_EQ(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, REF((int){1}), sizeof(int)), 0);
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, serve_client, (void *)(intptr_t)client), 0);
        CHECK_EQ(pthread_detach(thread), 0);
    }
    return NULL;
}

const char *s3_serve(s3_send *sends) {
    static char endpoint[64];
    current = sends;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    CHECK(listener >= 0);
    CHECK_EQ(bind(listener, (const struct sockaddr *)&address, size), 0);
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    CHECK_EQ(listen(listener, 128), 0);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, serve_all, (void *)(intptr_t)listener), 0);
    CHECK_EQ(pthread_detach(thread), 0);
    snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", ntohs(address.sin_port));
    return endpoint;
}
