// SPDX-License-Identifier: Apache-2.0
// Starts Debian's etcd, and reads its log until it serves.
#include "etcd_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <sys/prctl.h>

#define MAX_ARGUMENTS 32

static sem_t serving;

/* A port that was just free. etcd cannot choose one itself. */
static int free_port(void) {
    const int bound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bound >= 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    CHECK_EQ(bind(bound, (struct sockaddr *)&address, size), 0);
    CHECK_EQ(getsockname(bound, (struct sockaddr *)&address, &size), 0);
    close(bound);
    return ntohs(address.sin_port);
}

/* Starts a program that ends with this process. `input` and `output`: its file descriptors; -1: /dev/null. */
static pid_t start(const char *const *arguments, int input, int output) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(input >= 0 ? input : nothing, STDIN_FILENO);
    dup2(output >= 0 ? output : nothing, STDOUT_FILENO);
    dup2(output >= 0 ? output : nothing, STDERR_FILENO);
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

static void run(const char *const *arguments, const char *input_file) {
    const int input = input_file != NULL ? open(input_file, O_RDONLY | O_CLOEXEC) : -1;
    const int log = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    CHECK(log >= 0);
    const pid_t child = start(arguments, input, log);
    const int status = child_end(child);
    if (status != 0) {
        char text[2048] = "";
        CHECK(pread(log, text, sizeof(text) - 1, 0) >= 0);
        FAIL("%s ended with status %d: %s", arguments[0], status, text);
    }
    close(log);
    if (input >= 0) {
        close(input);
    }
}
#define RUN_PROGRAM(...) run((const char *const[]){__VA_ARGS__, NULL}, NULL)

/* A certificate authority, and its certificate for the server and its clients. */
static void make_certificates(etcd_server *server) {
    const char *folder = server->folder;
    const char *authority_key = TEXT("%s/authority.key", folder);
    const char *request = TEXT("%s/request", folder);
    const char *names = TEXT("%s/names", folder);
    snprintf(server->authority, sizeof(server->authority), "%s/authority.pem", folder);
    snprintf(server->certificate, sizeof(server->certificate), "%s/certificate.pem", folder);
    snprintf(server->key, sizeof(server->key), "%s/key.pem", folder);
    static const char extensions[] = "subjectAltName=IP:127.0.0.1,DNS:localhost\n"
                                     "basicConstraints=CA:FALSE\n"
                                     "extendedKeyUsage=serverAuth,clientAuth\n";
    write_file(names, extensions, sizeof(extensions) - 1);
    RUN_PROGRAM("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-subj", "/CN=kvmem test authority", "-days", "2", "-keyout", authority_key, "-out",
                server->authority);
    RUN_PROGRAM("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-subj",
                "/CN=kvmem-test", "-keyout", server->key, "-out", request);
    RUN_PROGRAM("openssl", "x509", "-req", "-in", request, "-CA", server->authority, "-CAkey", authority_key,
                "-CAcreateserial", "-days", "2", "-extfile", names, "-out", server->certificate);
}

/* Reads the log to its end, so that the server never blocks on it, and notes when it serves. */
static void *read_log(void *argument) {
    const int log = *(const int *)argument;
    FILE *lines = fdopen(dup(log), "re");
    char *line = NULL;
    size_t capacity = 0;
    while (lines != NULL && getline(&line, &capacity, lines) >= 0) {
        if (strstr(line, "serving client traffic") != NULL) {
            sem_post(&serving);
        } else if (strstr(line, "\"level\":\"fatal\"") != NULL) {
            fputs(line, stderr);
        }
    }
    free(line);
    if (lines != NULL) {
        fclose(lines);
    }
    return NULL;
}

static void launch(etcd_server *server) {
    const char *folder = server->folder;
    const char *peers = TEXT("http://127.0.0.1:%d", free_port());
    const char *arguments[MAX_ARGUMENTS] = {
        "etcd", "--name", "test", "--data-dir", TEXT("%s/data",
                                                     folder), "--listen-client-urls", server->endpoint,
        "--advertise-client-urls", server->endpoint, "--listen-peer-urls", peers, "--initial-advertise-peer-urls",
        peers, "--initial-cluster", TEXT("test=%s", peers), "--logger", "zap", "--log-outputs",
        "stderr", "--unsafe-no-fsync",
    };
    const char *const with_tls[] = {"--cert-file", server->certificate, "--key-file", server->key,
                                    "--client-cert-auth", "--trusted-ca-file", server->authority};
    size_t count = 0;
    while (arguments[count] != NULL) {
        count++;
    }
    for (size_t i = 0; server->has_tls && i < NUM(with_tls); i++) {
        arguments[count++] = with_tls[i];
    }
    int ends[2];
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_EQ(sem_init(&serving, 0, 0), 0);
    server->pid = start(arguments, -1, ends[1]);
    close(ends[1]);
    server->log = ends[0];
    CHECK_EQ(pthread_create(&server->reader, NULL, read_log, &server->log), 0);
    struct timespec until;
    CHECK_EQ(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += (time_t)(PATIENCE / SECONDS(1));
    if (sem_timedwait(&serving, &until) != 0) {
        FAIL("etcd does not serve at %s", server->endpoint);
    }
}

void etcd_server_open(etcd_server *server, bool has_tls) {
    *server = (etcd_server){.has_tls = has_tls, .port = free_port()};
    snprintf(server->folder, sizeof(server->folder), "%s/kvmem-etcd-XXXXXX", temporary_directory());
    CHECK(mkdtemp(server->folder) != NULL);
    snprintf(server->endpoint, sizeof(server->endpoint), "http%s://127.0.0.1:%d", has_tls ? "s" : "",
             server->port);
    if (has_tls) {
        make_certificates(server);
    }
    launch(server);
}

void etcd_server_kill(etcd_server *server) {
    if (server->pid <= 0) {
        return;
    }
    CHECK_EQ(kill(server->pid, SIGKILL), 0);
    child_end(server->pid);
    CHECK_EQ(pthread_join(server->reader, NULL), 0);
    close(server->log);
    server->pid = 0;
}

void etcd_server_restart(etcd_server *server, bool keeps_data) {
    etcd_server_kill(server);
    if (!keeps_data) {
        RUN_PROGRAM("rm", "-rf", TEXT("%s/data", server->folder));
    }
    launch(server);
}

void etcd_server_close(etcd_server *server) {
    etcd_server_kill(server);
    RUN_PROGRAM("rm", "-rf", server->folder);
}

void etcd_server_freeze(const etcd_server *server) {
    CHECK_EQ(kill(server->pid, SIGSTOP), 0);
    int state = 0;
    CHECK_EQ(waitpid(server->pid, &state, WUNTRACED), server->pid);
    CHECK(WIFSTOPPED(state));
}

void etcd_server_thaw(const etcd_server *server) {
    CHECK_EQ(kill(server->pid, SIGCONT), 0);
}

void etcd_control(const etcd_server *server, const char *const *arguments, const void *input, size_t size) {
    const char *all[MAX_ARGUMENTS] = {"etcdctl", "--endpoints", server->endpoint};
    size_t count = 3;
    const char *const with_tls[] = {"--cacert", server->authority, "--cert", server->certificate, "--key",
                                    server->key};
    for (size_t i = 0; server->has_tls && i < NUM(with_tls); i++) {
        all[count++] = with_tls[i];
    }
    for (; *arguments != NULL; arguments++) {
        all[count++] = *arguments;
    }
    CHECK_EQ(setenv("ETCDCTL_API", "3", 1), 0);
    const char *file = TEXT("%s/input", server->folder);
    write_file(file, input != NULL ? input : "", size);
    run(all, file);
}
