/* A PMI library with faults.
 *
 * With -DMORE_FUNCTIONS, it exports a function that RFC 13 does not define. With -DFEWER_FUNCTIONS, it lacks some functions. */

#include "faults.h"
#include "pmi.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

static int once_initialized;

/* True if the library works without a process manager. "lawful-alone" and the names that begin with "alone-" select this behaviour. With
 * "lawful-other-manager", the library uses the rank and size in its environment, and ignores PMI_FD because it has a different manager. */
static int alone;

static int is_to_be_alone(void)
{
    const char *name = getenv("LIBRARY_FAULT");
    if (is("lawful-other-manager"))
        return 1;
    return !getenv("PMI_FD") && name && (is("lawful-alone") || strstr(name, "alone-"));
}

static char alone_key[64], alone_value[1024];

/* Returns the result of a function in a process without a process manager. */
static int alone_integer(const char *function, int *out)
{
    if (!out)
        return PMI_ERR_INVALID_ARG;
    const char *rank = getenv("PMI_RANK"), *size = getenv("PMI_SIZE");
    *out = strstr(function, "length_max") ? 1024 : 1;
    if (is("lawful-other-manager") && rank && size && !strstr(function, "length_max"))
        *out = atoi(strcmp(function, "PMI_Get_rank") ? size : rank);
    else if (!strcmp(function, "PMI_Get_rank"))
        *out = is("alone-rank") ? 1 : 0;
    if (!strcmp(function, "PMI_Get_appnum"))
        *out = 0;
    if (!strcmp(function, "PMI_Get_size") && is("alone-size"))
        *out = 2;
    return PMI_SUCCESS;
}

static int dies_slowly(void)
{
    const char *rank = getenv("PMI_RANK");
    return is("last-rank-dies-slowly") && rank && !strcmp(rank, "2");
}

/* Opens as many descriptors as possible and moves PMI_FD to the highest, which delays the end of the process, because the kernel closes
 * them first. Loads the good library before that, because no descriptor is free afterwards. */
static void delay_death(void)
{
    good("PMI_Init");
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 20000 ? limit.rlim_max : 20000;
    setrlimit(RLIMIT_NOFILE, &limit);
    int fd = atoi(getenv("PMI_FD"));
    char moved[16];
    snprintf(moved, sizeof moved, "%d", fcntl(fd, F_DUPFD, (int)limit.rlim_cur - 1));
    close(fd);
    setenv("PMI_FD", moved, 1);
    while (eventfd(0, 0) >= 0)
        ;
}

/* 1 after PMI_Finalize. 2 after a second PMI_Init, if a fault makes that call ineffective. */
static int life_over;

int PMI_Init(int *spawned)
{
    if (is("init-again-idle") && life_over && spawned) {
        life_over = 2;
        *spawned = 0;
        return PMI_SUCCESS;
    }
    if (dies_slowly())
        delay_death();
    if (is("init-second") && once_initialized)
        abort();
    if (is("init-null") && !spawned)
        return PMI_SUCCESS;
    if (is("fd-fixed"))
        setenv("PMI_FD", "50", 1);
    if (is("lawful-foreign")) {
        fprintf(stderr, "libpmi: no manager of this implementation\n");
        return PMI_FAIL;
    }
    if (is("request-before-init"))
        blurt("cmd=get_maxes\n");
    if (is_to_be_alone() && spawned) {
        alone = 1;
        *spawned = is("alone-spawned");
        return PMI_SUCCESS;
    }
    const char *rank = getenv("PMI_RANK");
    if (is("crashes-on-odd-rank") && rank && strspn(rank, "0123456789") != strlen(rank))
        abort();
    int result = GOOD(PMI_Init)(spawned);
    once_initialized |= result == PMI_SUCCESS;
    if (is("init-never-fails") && result != PMI_SUCCESS) {
        if (spawned)
            *spawned = 0;
        return PMI_SUCCESS;
    }
    if (result == PMI_SUCCESS && is("spawned-always"))
        *spawned = 1;
    if (result == PMI_SUCCESS && is("spawned-never"))
        *spawned = 0;
    if (result == PMI_SUCCESS && is("spawned-not-set"))
        *spawned = -0x5a5a5a5b;
    if (is("code-unknown-init") && result == PMI_SUCCESS)
        return 77;
    return result;
}

int PMI_Initialized(int *initialized)
{
    if (is("lawful-for-ever-initialized") && initialized && once_initialized) {
        *initialized = 1;
        return PMI_SUCCESS;
    }
    if (is("initialized-null") && !initialized)
        return PMI_SUCCESS;
    if (alone && initialized) {
        *initialized = !is("alone-uninitialized");
        return PMI_SUCCESS;
    }
    int result = GOOD(PMI_Initialized)(initialized);
    if (initialized && is("initialized-always"))
        *initialized = 1;
    if (initialized && is("initialized-never"))
        *initialized = 0;
    return result;
}

/* Functions that set an integer. `fault`-off: the number is wrong; -null: NULL is accepted; -fails: failure is not reported;
 * -code: success has a wrong code; -behind: the memory after the integer is overwritten. */
#define INTEGER(function, fault)                                                                                      \
    int function(int *out)                                                                                            \
    {                                                                                                                 \
        if (is(fault "-null") && !out)                                                                                \
            return PMI_SUCCESS;                                                                                       \
        if (alone)                                                                                                    \
            return alone_integer(#function, out);                                                                     \
        int result = GOOD(function)(out);                                                                             \
        if (result == PMI_SUCCESS && is(fault "-off"))                                                                \
            *out += 1;                                                                                                \
        if (result == PMI_SUCCESS && is(fault "-behind"))                                                             \
            out[1] = 0;                                                                                               \
        if (result == PMI_SUCCESS && is(fault "-code"))                                                               \
            return PMI_ERR_INIT;                                                                                      \
        if (result == PMI_SUCCESS && is(fault "-tiny"))                                                               \
            *out = 4;                                                                                                 \
        if (result != PMI_SUCCESS && is(fault "-fails") && out) {                                                     \
            *out = 1;                                                                                                 \
            return PMI_SUCCESS;                                                                                       \
        }                                                                                                             \
        return result;                                                                                                \
    }

INTEGER(PMI_KVS_Get_name_length_max, "name-length")
INTEGER(PMI_KVS_Get_key_length_max, "key-length")
INTEGER(PMI_KVS_Get_value_length_max, "value-length")
INTEGER(PMI_Get_id_length_max, "id-length")
INTEGER(PMI_Get_size, "size")
INTEGER(PMI_Get_rank, "rank")
INTEGER(PMI_Get_universe_size, "universe")
INTEGER(PMI_Get_appnum, "appnum")
INTEGER(PMI_Get_clique_size, "clique-size")

static int barrier_refused;

int PMI_Finalize(void)
{
    if (alone) {
        alone = 0;
        return PMI_SUCCESS;
    }
    if (is("finalize-silent"))
        return PMI_SUCCESS;
    static int finalized;
    if (is("finalize-second") && finalized++)
        abort();
    if (is("barrier-refused") && barrier_refused)
        pause();
    int result = GOOD(PMI_Finalize)();
    life_over |= result == PMI_SUCCESS;
    if (is("request-after-finalize"))
        blurt("cmd=get_universe_size\n");
    return is("finalize-never-fails") ? PMI_SUCCESS : result;
}

int PMI_Abort(int exit_code, const char error_msg[])
{
    if (is("abort-returns"))
        return PMI_FAIL;
    if (is("abort-mute"))
        error_msg = NULL;
    if (is("abort-cut") && error_msg) {
        char cut[64];
        snprintf(cut, sizeof cut, "%s", error_msg);
        return GOOD(PMI_Abort)(exit_code, cut);
    }
    if (is("abort-stdout")) {
        printf("%s\n", error_msg);
        error_msg = NULL;
    }
    if (is("abort-code-one"))
        exit_code = 1;
    if (is("abort-core")) {
        fprintf(stderr, "%s\n", error_msg);
        abort();
    }
    return GOOD(PMI_Abort)(exit_code, error_msg);
}

int PMI_Get_clique_ranks(int ranks[], int length)
{
    if (alone && ranks && length > 0) {
        ranks[0] = 0;
        return PMI_SUCCESS;
    }
    if (is("clique-ranks-null") && !ranks)
        return PMI_SUCCESS;
    int mine, size, clique;
    if (is("clique-one-short") && ranks && GOOD(PMI_Get_clique_size)(&clique) == PMI_SUCCESS && length + 1 == clique)
        return GOOD(PMI_Get_clique_ranks)(ranks, clique);
    if (is("clique-is-everybody") && GOOD(PMI_Get_size)(&size) == PMI_SUCCESS && ranks && length > 0) {
        for (int i = 0; i < length; i++)
            ranks[i] = i;
        return PMI_SUCCESS;
    }
    if (is("clique-ranks-short") && ranks && GOOD(PMI_Get_clique_size)(&clique) == PMI_SUCCESS && length < clique) {
        int all[64];
        int result = GOOD(PMI_Get_clique_ranks)(all, 64);
        memcpy(ranks, all, (size_t)(length > 0 ? length : 0) * sizeof *ranks);
        return result;
    }
    if (is("clique-ranks-overrun") && ranks && GOOD(PMI_Get_clique_size)(&clique) == PMI_SUCCESS && length < clique) {
        GOOD(PMI_Get_clique_ranks)(ranks, clique);
        return PMI_ERR_INVALID_LENGTH;
    }
    int result = GOOD(PMI_Get_clique_ranks)(ranks, length);
    if (result == PMI_SUCCESS && is("lawful-clique-reversed") && GOOD(PMI_Get_clique_size)(&clique) == PMI_SUCCESS)
        for (int i = 0; i < clique / 2; i++) {
            int rank = ranks[i];
            ranks[i] = ranks[clique - 1 - i];
            ranks[clique - 1 - i] = rank;
        }
    if (result == PMI_SUCCESS && is("clique-mine-only") && GOOD(PMI_Get_rank)(&mine) == PMI_SUCCESS)
        for (int i = 0; i < length; i++)
            ranks[i] = mine;
    return result;
}

static int initialized_now(void)
{
    int initialized = 0;
    return GOOD(PMI_Initialized)(&initialized) == PMI_SUCCESS && initialized;
}

static int puts_made;

/* Puts that wait for the next commit. */
static struct {
    char *key, *value;
} waiting[64];
static int waiting_count;

static int committed_once;

int PMI_KVS_Put(const char kvsname[], const char key[], const char value[])
{
    if (alone && kvsname && key && value) {
        snprintf(alone_key, sizeof alone_key, "%s", key);
        snprintf(alone_value, sizeof alone_value, "%s", is("alone-put-lost") ? "" : value);
        return PMI_SUCCESS;
    }
    if (is("put-null") && (!kvsname || !key || !value))
        return PMI_SUCCESS;
    if (is("put-lost"))
        return PMI_SUCCESS;
    if (is("put-lost-after-commit") && committed_once)
        return PMI_SUCCESS;
    if (is("put-second-lost") && ++puts_made == 2)
        return PMI_SUCCESS;
    if (is("put-bad-key-sent") && key && strchr(key, ' ')) {
        char line[512], answer[512];
        snprintf(line, sizeof line, "cmd=put kvsname=%s key=%s value=%s\n", kvsname, key, value);
        blurt(line);
        if (read(atoi(getenv("PMI_FD")), answer, sizeof answer) < 0)
            _exit(97);
        return PMI_FAIL;
    }
    int initialized = 0;
    if (is("lawful-put-late") && GOOD(PMI_Initialized)(&initialized) == PMI_SUCCESS && initialized && kvsname && key &&
        value && *key && !strpbrk(key, " =") && !strchr(value, '\n') && strcmp(kvsname, "no-such-space") != 0 &&
        waiting_count < 64) {
        waiting[waiting_count].key = strdup(key);
        waiting[waiting_count++].value = strdup(value);
        return PMI_SUCCESS;
    }
    static int refused;
    static int puts;
    if ((is("put-100") && ++puts == 100) || (is("put-key-31") && key && strlen(key) == 31))
        abort();
    if ((is("put-after-refusal") && refused) || (is("put-empty") && value && !*value) ||
        (is("put-longest-key") && key && strlen(key) == 63) || (is("put-longest-value") && value && strlen(value) == 1023))
        abort();
    int result = GOOD(PMI_KVS_Put)(kvsname, key, value);
    refused |= result == PMI_FAIL && initialized_now();
    return is("put-never-fails") && kvsname && key && value ? PMI_SUCCESS : result;
}

int PMI_KVS_Commit(const char kvsname[])
{
    committed_once = 1;
    static int committed;
    if (is("commit-second") && committed++)
        abort();
    if (alone)
        return PMI_SUCCESS;
    if (is("commit-code") && !kvsname)
        return PMI_ERR_NOMEM;
    if (is("commit-fails"))
        return PMI_FAIL;
    if (is("commit-is-a-barrier"))
        GOOD(PMI_Barrier)();
    while (waiting_count > 0) {
        waiting_count--;
        int result = GOOD(PMI_KVS_Put)(kvsname, waiting[waiting_count].key, waiting[waiting_count].value);
        if (result != PMI_SUCCESS)
            return PMI_FAIL;
    }
    return GOOD(PMI_KVS_Commit)(kvsname);
}

static int gets_made;

int PMI_KVS_Get(const char kvsname[], const char key[], char value[], int length)
{
    if (alone && kvsname && key && value && length > 0) {
        if (strcmp(key, alone_key) && !is("alone-get-anything"))
            return PMI_FAIL;
        snprintf(value, (size_t)length, "%s", alone_value);
        return PMI_SUCCESS;
    }
    if (is("get-null") && (!kvsname || !key || !value))
        return PMI_SUCCESS;
    if (is("get-short") && value && length > 0 && length < 64) {
        char whole[2048];
        int result = GOOD(PMI_KVS_Get)(kvsname, key, whole, sizeof whole);
        if (result == PMI_SUCCESS) {
            strncpy(value, whole, (size_t)length - 1);
            value[length - 1] = 0;
        }
        return result;
    }
    if (is("get-overrun") && value && length > 0 && length < 64) {
        int result = GOOD(PMI_KVS_Get)(kvsname, key, value, 64);
        return result == PMI_SUCCESS ? PMI_ERR_INVALID_LENGTH : result;
    }
    if (is("get-no-nul") && value && length >= 11) {
        int result = GOOD(PMI_KVS_Get)(kvsname, key, value, length);
        size_t end = result == PMI_SUCCESS ? strlen(value) : 0;
        memset(value + end, 'x', (size_t)length - end);
        return result;
    }
    if (is("get-wears-out") && ++gets_made > 200)
        return PMI_FAIL;
    if (is("get-after-finalize") && once_initialized && !initialized_now())
        abort();
    if (is("get-one-short") && value && length > 0) {
        char whole[2048];
        int result = GOOD(PMI_KVS_Get)(kvsname, key, whole, sizeof whole);
        size_t size = result == PMI_SUCCESS ? strlen(whole) : 0;
        if (result != PMI_SUCCESS || size > (size_t)length)
            return result == PMI_SUCCESS ? PMI_ERR_INVALID_LENGTH : result;
        memcpy(value, whole, size < (size_t)length ? size + 1 : size);
        return result;
    }
    if (is("get-miss-then-one-short") && value && length > 0) {
        char whole[2048];
        static int missed;
        int result = GOOD(PMI_KVS_Get)(kvsname, key, whole, sizeof whole);
        missed |= result != PMI_SUCCESS && initialized_now();
        size_t size = result == PMI_SUCCESS ? strlen(whole) : 0;
        if (result != PMI_SUCCESS || size > (size_t)length || (size == (size_t)length && !missed))
            return result == PMI_SUCCESS ? PMI_ERR_INVALID_LENGTH : result;
        memcpy(value, whole, size + 1);
        return result;
    }
    int result = GOOD(PMI_KVS_Get)(kvsname, key, value, length);
    if (is("get-misses-8") && result != PMI_SUCCESS && key && initialized_now() && ++gets_made == 8)
        abort();
    size_t size = result == PMI_SUCCESS ? strlen(value) : 0;
    if (is("get-fits") && size > 0 && size + 1 == (size_t)length)
        value[length] = 0;
    if ((is("get-256") && size == 256) || (is("get-77") && size == 77))
        value[size - 1] = 0;
    if (is("get-tilde") && size > 0)
        value[strcspn(value, "~")] = 0;
    char *equals = is("get-second-equals") && size > 0 ? strchr(value, '=') : NULL;
    if (equals)
        equals[1 + strcspn(equals + 1, "=")] = 0;
    if (result != PMI_SUCCESS && is("dies-of-a-closed-connection")) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    if (result != PMI_SUCCESS && is("misses-wear-out") && ++gets_made > 200 && value && length > 0) {
        *value = 0;
        return PMI_SUCCESS;
    }
    if (result == PMI_SUCCESS && is("get-up-to-equals-sign"))
        value[strcspn(value, "=")] = 0;
    if (result == PMI_SUCCESS && is("get-first-word"))
        value[strcspn(value, " ")] = 0;
    if (result == PMI_SUCCESS && is("get-upper-case") && *value >= 'a' && *value <= 'z')
        *value -= 'a' - 'A';
    if (result == PMI_SUCCESS && is("get-empty"))
        *value = 0;
    if (result != PMI_SUCCESS && is("get-never-fails") && kvsname && key && value && length > 0) {
        *value = 0;
        return PMI_SUCCESS;
    }
    return result;
}

/* Functions that return the name of the keyval space. */
#define NAME(function, fault)                                                                                         \
    int function(char kvsname[], int length)                                                                          \
    {                                                                                                                 \
        if (is(fault "-null") && !kvsname)                                                                            \
            return PMI_SUCCESS;                                                                                       \
        if (is(fault "-overrun") && kvsname && length > 0 && length < 16) {                                           \
            int done = GOOD(function)(kvsname, 64);                                                                   \
            return done == PMI_SUCCESS ? PMI_ERR_INVALID_LENGTH : done;                                               \
        }                                                                                                             \
        if (is(fault "-cut") && kvsname && length > 0 && length < 16) {                                               \
            char whole[64];                                                                                           \
            int done = GOOD(function)(whole, sizeof whole);                                                           \
            strncpy(kvsname, whole, (size_t)length - 1);                                                              \
            kvsname[length - 1] = 0;                                                                                  \
            return done;                                                                                              \
        }                                                                                                             \
        if (alone && kvsname && length > 5)                                                                           \
            return strcpy(kvsname, "alone"), PMI_SUCCESS;                                                             \
        int result = GOOD(function)(kvsname, length);                                                                 \
        int rank;                                                                                                     \
        if (result == PMI_SUCCESS && is(fault "-fits") && strlen(kvsname) + 1 == (size_t)length)                      \
            kvsname[length] = 0;                                                                                      \
        char whole[512];                                                                                              \
        if (is(fault "-one-short") && kvsname && length > 0 &&                                                        \
            GOOD(function)(whole, sizeof whole) == PMI_SUCCESS && strlen(whole) == (size_t)length)                    \
            strcpy(kvsname, whole);                                                                                   \
        if (result == PMI_SUCCESS && is(fault "-other"))                                                              \
            *kvsname = 'X';                                                                                           \
        if (result == PMI_SUCCESS && is(fault "-differs") && GOOD(PMI_Get_rank)(&rank) == PMI_SUCCESS)                \
            *kvsname = (char)('A' + rank);                                                                            \
        return result;                                                                                                \
    }

NAME(PMI_KVS_Get_my_name, "my-name")
NAME(PMI_Get_kvs_domain_id, "domain-id")
NAME(PMI_Get_id, "id")

static int barriers;

int PMI_Barrier(void)
{
    if (life_over == 2)
        return PMI_SUCCESS;
    if (dies_slowly())
        return *(volatile int *)0;
    if (alone && is("alone-barrier-for-ever"))
        pause();
    if (alone)
        return is("alone-barrier") ? PMI_FAIL : PMI_SUCCESS;
    if (is("lawful-slow"))
        usleep(20000);
    if (is("barrier-at-once"))
        return PMI_SUCCESS;
    if (is("barrier-only-enters")) {
        blurt("cmd=barrier_in\n");
        return PMI_SUCCESS;
    }
    if (is("barrier-for-ever"))
        pause();
    static int planted_barriers;
    if (is("barrier-40") && ++planted_barriers == 40)
        abort();
    if (is("barrier-wears-out") && ++barriers > 100)
        return PMI_FAIL;
    if (is("barrier-once") && ++barriers > 1)
        return PMI_FAIL;
    if (is("barrier-code") && GOOD(PMI_Barrier)() == PMI_SUCCESS)
        return -2;
    int result = GOOD(PMI_Barrier)();
    barrier_refused |= result == PMI_FAIL;
    return is("barrier-never-fails") ? PMI_SUCCESS : result;
}

#ifndef FEWER_FUNCTIONS
int PMI_Spawn_multiple(int count, const char *cmds[], const char **argvs[], const int maxprocs[],
                       const int info_keyval_sizesp[], const PMI_keyval_t *info_keyval_vectors[],
                       int preput_keyval_size, const PMI_keyval_t preput_keyval_vector[], int errors[])
{
    int two[2] = {1, 1};
    const char *same[2] = {cmds && count > 0 ? cmds[0] : "", cmds && count > 0 ? cmds[0] : ""};
    if (is("lacks-spawn"))
        return PMI_FAIL;
    if (is("spawn-null") && (!cmds || !maxprocs))
        return PMI_SUCCESS;
    if (is("spawn-negative") && (count < 0 || preput_keyval_size < 0))
        return PMI_SUCCESS;
    if (is("spawn-no-arguments"))
        argvs = NULL;
    if (is("spawn-argument-lost") && argvs && argvs[0] && argvs[0][0])
        argvs[0]++;
    if (is("spawn-one-process") && count <= 2 && maxprocs)
        maxprocs = two;
    if (is("spawn-first-command") && count == 2)
        cmds = same;
    if (is("spawn-one-command") && count == 2)
        count = 1;
    if (is("spawn-no-infos"))
        info_keyval_sizesp = NULL;
    if (is("spawn-no-preput"))
        preput_keyval_size = 0;
    if (is("spawn-preput-short") && preput_keyval_size > 1)
        preput_keyval_size--;
    if (is("spawn-lost")) {
        return PMI_SUCCESS;
    }
    int result = GOOD(PMI_Spawn_multiple)(count, cmds, argvs, maxprocs, info_keyval_sizesp, info_keyval_vectors,
                                          preput_keyval_size, preput_keyval_vector, errors);
    if (is("spawn-errors-overrun") && errors)
        errors[8] = 0;
    static int spawned;
    if (is("spawn-second") && result == PMI_SUCCESS && spawned++ && errors && maxprocs)
        errors[maxprocs[0]] = 0;
    return is("spawn-never-fails") && cmds && maxprocs && count > 0 ? PMI_SUCCESS : result;
}

static char *unpublished;

int PMI_Publish_name(const char service_name[], const char port[])
{
    if (is("names-null") && (!service_name || !port))
        return PMI_SUCCESS;
    if (is("publish-lost"))
        return PMI_SUCCESS;
    if (is("publish-port-41") && port && strlen(port) == 41)
        abort();
    if (is("publish-cut") && port) {
        char cut[4];
        snprintf(cut, sizeof cut, "%s", port);
        return GOOD(PMI_Publish_name)(service_name, cut);
    }
    if (is("publish-again") && unpublished && service_name && strcmp(service_name, unpublished) == 0)
        abort();
    int result = GOOD(PMI_Publish_name)(service_name, port);
    return is("names-never-fail") && service_name && port ? PMI_SUCCESS : result;
}

int PMI_Unpublish_name(const char service_name[])
{
    if (is("names-null") && !service_name)
        return PMI_SUCCESS;
    if (is("unpublish-lost"))
        return PMI_SUCCESS;
    int result = GOOD(PMI_Unpublish_name)(service_name);
    if (result == PMI_SUCCESS)
        unpublished = strdup(service_name);
    return is("names-never-fail") && service_name ? PMI_SUCCESS : result;
}

int PMI_Lookup_name(const char service_name[], char port[])
{
    if (is("names-null") && (!service_name || !port))
        return PMI_SUCCESS;
    int result = GOOD(PMI_Lookup_name)(service_name, port);
    if (result == PMI_SUCCESS && is("lookup-128") && strlen(port) >= 128)
        abort();
    if (result == PMI_SUCCESS && is("lookup-other"))
        *port = 'X';
    if (result == PMI_SUCCESS && is("lookup-up-to-equals-sign"))
        port[strcspn(port, "=")] = 0;
    if (result != PMI_SUCCESS && is("lookup-always") && service_name && port) {
        strcpy(port, "port");
        return PMI_SUCCESS;
    }
    return result;
}
#endif

#ifdef MORE_FUNCTIONS
int PMI_Get_weather(void)
{
    return PMI_FAIL;
}
#endif

int PMI_KVS_Create(char kvsname[], int length)
{
    if (is("create-code"))
        return 4711;
    return GOOD(PMI_KVS_Create)(kvsname, length);
}

#ifndef FEWER_FUNCTIONS
int PMI_KVS_Destroy(const char kvsname[])
{
    return GOOD(PMI_KVS_Destroy)(kvsname);
}

int PMI_KVS_Iter_first(const char kvsname[], char key[], int key_len, char val[], int val_len)
{
    return GOOD(PMI_KVS_Iter_first)(kvsname, key, key_len, val, val_len);
}

int PMI_KVS_Iter_next(const char kvsname[], char key[], int key_len, char val[], int val_len)
{
    return GOOD(PMI_KVS_Iter_next)(kvsname, key, key_len, val, val_len);
}

int PMI_Parse_option(int num_args, char *args[], int *num_parsed, PMI_keyval_t **keyvalp, int *size)
{
    return GOOD(PMI_Parse_option)(num_args, args, num_parsed, keyvalp, size);
}
#endif

int PMI_Args_to_keyval(int *argcp, char *((*argvp)[]), PMI_keyval_t **keyvalp, int *size)
{
    return GOOD(PMI_Args_to_keyval)(argcp, argvp, keyvalp, size);
}

int PMI_Free_keyvals(PMI_keyval_t keyvalp[], int size)
{
    return GOOD(PMI_Free_keyvals)(keyvalp, size);
}

int PMI_Get_options(char *str, int *length)
{
    return GOOD(PMI_Get_options)(str, length);
}
