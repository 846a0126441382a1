/* A minimal process manager for PMI-1.1 in C, whose rare bugs depend on single bytes: small-manager [--bug NAME] -n N PROGRAM ARGS...;
 * --list prints the bugs. Without a bug, the manager conforms. After SIGCONT, it prints "continued" to stderr. Responses do not show how
 * close a session came to a bug, but the executed edges of the program do. */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 64, ROOM = 1 << 17, SLOTS = 64 };

static const char *const BUGS[] = {
    "key-pair\ta key that begins with q~ crashes",
    "key-word\ta key that begins with dbg crashes",
    "key-quoted\ta key that begins and ends with ' and has a $ after the first crashes",
    "value-escape\ta value with the escape \\x and a letter crashes",
    "value-format\ta value with %5n, or another digit, crashes",
    "value-brace\ta value that begins with ${ and ends with } is stored without its last byte",
    "chain-5\tthe fifth key in one of 64 slots is not stored",
};

struct pair {
    char *key, *value;
    struct pair *next;
};

struct rank {
    int fd, begun, finalized, waits, spawns;
    size_t length;
    char *buffer;
};

static struct rank ranks[MOST];
static pid_t pids[MOST];
static struct pair *slots[SLOTS];
static int size, status;
static const char *bug = "";
static const char NAME[] = "kvs_small";

static int is(const char *name) { return strcmp(bug, name) == 0; }

static void end(int code)
{
    status = code;
    for (int i = 0; i < size; i++) {
        kill(pids[i], SIGKILL);
        if (ranks[i].fd >= 0)
            close(ranks[i].fd);
        ranks[i].fd = -1;
    }
}

static void say(struct rank *to, const char *line)
{
    for (size_t done = 0, all = strlen(line); to->fd >= 0 && done < all;) {
        ssize_t n = send(to->fd, line + done, all - done, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return;
        done += n > 0 ? (size_t)n : 0;
    }
}

/* Returns the value of a key in a line whose tuples are separated by NULs, or NULL if the key is missing. The value of the key `value`
 * extends to the end of the line. */
static const char *get(const char *line, size_t length, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = line; at < line + length; at += strlen(at) + 1)
        if (strncmp(at, key, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

/* Separates the tuples with NULs. Returns 0 if the line is invalid, and otherwise 1. */
static int part(char *line, size_t length)
{
    char *at = line;
    if (memchr(line, 0, length))
        return 0;
    while (*at) {
        size_t word = strcspn(at, " \t");
        if (word == 0) {
            *at++ = 0;
            continue;
        }
        if (!memchr(at, '=', word))
            return 0;
        if (strncmp(at, "value=", 6) == 0)
            return 1;
        at += word;
        if (*at)
            *at++ = 0;
    }
    return 1;
}

static int letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Triggers the bugs that depend on the key or the value of a put. */
static void look(const char *key, char *value)
{
    size_t keys = strlen(key), values = strlen(value);
    if (is("key-pair") && key[0] == 'q')
        if (key[1] == '~')
            abort();
    if (is("key-word") && key[0] == 'd')
        if (key[1] == 'b')
            if (key[2] == 'g')
                abort();
    if (is("key-quoted") && keys > 2 && key[0] == '\'')
        if (key[1] == '$')
            if (key[keys - 1] == '\'')
                abort();
    for (size_t i = 0; i + 2 < values; i++) {
        if (is("value-escape") && value[i] == '\\')
            if (value[i + 1] == 'x')
                if (letter(value[i + 2]))
                    abort();
        if (is("value-format") && value[i] == '%')
            if (value[i + 1] >= '0' && value[i + 1] <= '9')
                if (value[i + 2] == 'n')
                    abort();
    }
    if (is("value-brace") && value[0] == '$')
        if (value[1] == '{')
            if (value[values - 1] == '}')
                value[values - 1] = 0;
}

static struct pair **find(const char *key, int *steps)
{
    unsigned sum = 0;
    for (const char *at = key; *at; at++)
        sum = sum * 31 + (unsigned char)*at;
    struct pair **pair = &slots[sum % SLOTS];
    for (*steps = 0; *pair && strcmp((*pair)->key, key); ++*steps)
        pair = &(*pair)->next;
    return pair;
}

static struct pair *pair_of(const char *key, const char *value)
{
    struct pair *pair = calloc(1, sizeof *pair);
    pair->key = strdup(key);
    pair->value = strdup(value);
    return pair;
}

static void put(struct rank *by, const char *key, const char *value)
{
    int steps;
    struct pair **pair = find(key, &steps);
    if (*pair || strlen(key) > 63 || strlen(value) > 1023) {
        say(by, "cmd=put_result rc=-1 msg=refused\n");
        return;
    }
    if (!(is("chain-5") && steps >= 4)) {
        *pair = pair_of(key, value);
        look(key, (*pair)->value);
    }
    say(by, "cmd=put_result rc=0\n");
}

static void barrier(struct rank *by)
{
    by->waits = 1;
    for (int i = 0; i < size; i++)
        if (!ranks[i].waits)
            return;
    for (int i = 0; i < size; i++) {
        ranks[i].waits = 0;
        say(&ranks[i], "cmd=barrier_out rc=0\n");
    }
}

/* Answers a request. Returns 0 if the request is invalid. */
static int answer(struct rank *by, char *line, size_t length)
{
    static char text[ROOM + 100];
    int steps;
    if (by->spawns || !strcmp(line, "mcmd=spawn")) {
        /* Only the last message of a spawn is answered. */
        by->spawns = strcmp(line, "endcmd") != 0;
        if (!by->spawns)
            say(by, "cmd=spawn_result rc=-1 msg=not_served\n");
        return by->begun;
    }
    if (!part(line, length))
        return 0;
    const char *command = get(line, length, "cmd"), *name = get(line, length, "kvsname");
    const char *key = get(line, length, "key"), *value = get(line, length, "value");
    if (!command || (!by->begun && strcmp(command, "init")))
        return 0;
    if (!strcmp(command, "init")) {
        const char *version = get(line, length, "pmi_version"), *sub = get(line, length, "pmi_subversion");
        if (!version || !sub)
            return 0;
        long offered = strtol(version, NULL, 10);
        int fits = offered > 1 || (offered == 1 && strtol(sub, NULL, 10) >= 1);
        by->begun = by->begun || fits;
        snprintf(text, sizeof text, "cmd=response_to_init rc=%d pmi_version=1 pmi_subversion=1\n", fits ? 0 : -1);
        say(by, text);
    } else if (!strcmp(command, "get_maxes")) {
        say(by, "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    } else if (!strcmp(command, "get_my_kvsname")) {
        say(by, "cmd=my_kvsname rc=0 kvsname=kvs_small\n");
    } else if (!strcmp(command, "get_universe_size")) {
        snprintf(text, sizeof text, "cmd=universe_size rc=0 size=%d\n", size);
        say(by, text);
    } else if (!strcmp(command, "get_appnum")) {
        say(by, "cmd=appnum rc=0 appnum=0\n");
    } else if (!strcmp(command, "barrier_in")) {
        barrier(by);
    } else if (!strcmp(command, "put")) {
        if (!key || !value)
            return 0;
        if (!name || strcmp(name, NAME) || !*key)
            say(by, "cmd=put_result rc=-1 msg=refused\n");
        else
            put(by, key, value);
    } else if (!strcmp(command, "get")) {
        if (!key)
            return 0;
        struct pair *pair = name && !strcmp(name, NAME) ? *find(key, &steps) : NULL;
        if (pair)
            snprintf(text, sizeof text, "cmd=get_result rc=0 value=%s\n", pair->value);
        say(by, pair ? text : "cmd=get_result rc=-1 msg=not_found\n");
    } else if (!strcmp(command, "lookup_name")) {
        say(by, "cmd=lookup_result rc=-1 msg=not_served\n");
    } else if (!strcmp(command, "publish_name")) {
        say(by, "cmd=publish_result rc=-1 msg=not_served\n");
    } else if (!strcmp(command, "unpublish_name")) {
        say(by, "cmd=unpublish_result rc=-1 msg=not_served\n");
    } else if (!strcmp(command, "finalize")) {
        by->finalized = 1;
        say(by, "cmd=finalize_ack rc=0\n");
    } else if (!strcmp(command, "abort")) {
        const char *code = get(line, length, "exitcode");
        end(code && atoi(code) ? atoi(code) & 255 : 1);
    } else {
        return 0;
    }
    return 1;
}

static void hear(struct rank *rank)
{
    ssize_t n = read(rank->fd, rank->buffer + rank->length, ROOM - rank->length);
    if (n <= 0) {
        close(rank->fd);
        rank->fd = -1;
        if (rank->begun && !rank->finalized)
            end(1);
        return;
    }
    rank->length += (size_t)n;
    for (char *newline; rank->fd >= 0 && (newline = memchr(rank->buffer, '\n', rank->length));) {
        size_t length = (size_t)(newline - rank->buffer);
        *newline = 0;
        if (!answer(rank, rank->buffer, length)) {
            fputs("small-manager: invalid request\n", stderr);
            end(1);
            return;
        }
        rank->length -= length + 1;
        memmove(rank->buffer, newline + 1, rank->length);
    }
    if (rank->length == ROOM)
        end(1);
}

static void report_continued(int signal)
{
    (void)signal;
    (void)!write(2, "continued\n", 10);
}

static void start(int rank, char **argv)
{
    char text[16];
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(text, sizeof text, "%d", dup(pair[1]));
        setenv("PMI_FD", text, 1);
        snprintf(text, sizeof text, "%d", rank);
        setenv("PMI_RANK", text, 1);
        snprintf(text, sizeof text, "%d", size);
        setenv("PMI_SIZE", text, 1);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(pair[1]);
    pids[rank] = pid;
    ranks[rank].fd = pair[0];
    ranks[rank].buffer = malloc(ROOM);
}

int main(int argc, char **argv)
{
    int first = 1;
    if (argc == 2 && is("") && !strcmp(argv[1], "--list")) {
        for (size_t i = 0; i < sizeof BUGS / sizeof *BUGS; i++)
            puts(BUGS[i]);
        return 0;
    }
    for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
        if (!strcmp(argv[first], "--bug"))
            bug = argv[first + 1];
        else if (!strcmp(argv[first], "-n"))
            size = atoi(argv[first + 1]);
    }
    if (first >= argc || size < 1 || size > MOST) {
        fprintf(stderr, "usage: small-manager [--bug NAME] -n N PROGRAM ARGS... | --list\n");
        return 2;
    }
    signal(SIGCONT, report_continued);
    int steps;
    char mapping[64];
    snprintf(mapping, sizeof mapping, "(vector,(0,1,%d))", size);
    *find("PMI_process_mapping", &steps) = pair_of("PMI_process_mapping", mapping);
    for (int i = 0; i < size; i++)
        start(i, argv + first);
    for (;;) {
        struct pollfd fds[MOST];
        int open = 0;
        for (int i = 0; i < size; i++) {
            fds[i] = (struct pollfd){.fd = ranks[i].fd, .events = POLLIN};
            open += ranks[i].fd >= 0;
        }
        if (!open)
            break;
        if (poll(fds, (nfds_t)size, -1) < 0 && errno != EINTR)
            return 1;
        for (int i = 0; i < size; i++)
            if (fds[i].revents && ranks[i].fd >= 0)
                hear(&ranks[i]);
    }
    for (int i = 0; i < size; i++) {
        int ended;
        waitpid(pids[i], &ended, 0);
        if (!status)
            status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
    }
    return status;
}
