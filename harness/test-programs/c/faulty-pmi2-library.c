/* A PMI-2 library with faults. With -DFEWER_FUNCTIONS, it lacks some functions. */

#include "faults.h"
#include "pmi2.h"

/* Set if the library works without a process manager. */
static int alone;

/* Set after PMI2_Finalize. */
static int life_over;

int PMI2_Init(int *spawned, int *size, int *rank, int *appnum)
{
    if (is("frame-for-the-offer"))
        blurt("    13cmd=fullinit;");
    const char *name = getenv("LIBRARY_FAULT");
    if (!getenv("PMI_FD") && name && (is("lawful-alone") || strstr(name, "alone-"))) {
        *spawned = 0;
        *size = 1 + is("alone-size");
        *rank = is("alone-rank");
        *appnum = -1;
        alone = 1;
        return PMI2_SUCCESS;
    }
    if (is("init-again-idle") && life_over)
        return PMI2_SUCCESS;
    int result = GOOD(PMI2_Init)(spawned, size, rank, appnum);
    if (result != PMI2_SUCCESS) {
        if (!is("init-never-fails"))
            return result;
        *spawned = *rank = *appnum = 0;
        *size = 1;
        return PMI2_SUCCESS;
    }
    *size += is("size-off");
    *rank += is("rank-off");
    *appnum += is("appnum-off");
    if (is("spawned-always"))
        *spawned = 1;
    if (is("spawned-never"))
        *spawned = 0;
    if (is("appnum-not-set"))
        *appnum = -0x5a5a5a5b;
    return result;
}

static int fence_refused;

int PMI2_Finalize(void)
{
    if (is("fence-refused") && fence_refused)
        pause();
    if (alone) {
        alone = 0;
        return PMI2_SUCCESS;
    }
    if (is("finalize-silent"))
        return PMI2_SUCCESS;
    int result = GOOD(PMI2_Finalize)();
    life_over |= result == PMI2_SUCCESS;
    return is("finalize-never-fails") ? PMI2_SUCCESS : result;
}

int PMI2_Initialized(void)
{
    int result = GOOD(PMI2_Initialized)();
    return is("initialized-always") ? 1 : is("initialized-never") ? 0 : result;
}

int PMI2_Abort(int flag, const char msg[])
{
    if (is("abort-returns"))
        return PMI2_FAIL;
    if (is("abort-silent"))
        exit(1);
    if (is("lawful-abort-core")) {
        blurt(flag ? "    29cmd=abort;isworld=TRUE;msg=x;" : "    30cmd=abort;isworld=FALSE;msg=x;");
        abort();
    }
    return GOOD(PMI2_Abort)(is("abort-for-all") ? 1 : flag, msg);
}

int PMI2_Job_Spawn(int count, const char *cmds[], int argcs[], const char **argvs[], const int maxprocs[],
                   const int info_keyval_sizes[], const MPID_Info *info_keyval_vectors[], int preput_keyval_size,
                   const MPID_Info *preput_keyval_vector[], char jobId[], int jobIdSize, int errors[])
{
    if (is("spawn-lost"))
        return PMI2_SUCCESS;
    int one[] = {1};
    char whole[64];
    char *id = is("buffers-ignored") && jobId ? whole : jobId;
    int result = GOOD(PMI2_Job_Spawn)(is("spawn-first-command") ? 1 : count, cmds, argcs,
                                      is("spawn-no-arguments") ? NULL : argvs, is("spawn-one-process") ? one : maxprocs,
                                      info_keyval_sizes, is("spawn-no-infos") ? NULL : info_keyval_vectors,
                                      is("spawn-no-preput") ? 0 : preput_keyval_size, preput_keyval_vector, id,
                                      id == whole ? (int)sizeof whole : jobIdSize, errors);
    if (result == PMI2_SUCCESS && id == whole)
        strcpy(jobId, whole);
    if (result == PMI2_SUCCESS && is("spawn-no-id") && jobId && jobIdSize > 0)
        strncpy(jobId, "job", jobIdSize);
    return is("spawn-never-fails") ? PMI2_SUCCESS : result;
}

/* Functions that fill a buffer. `fault`-other: the content is wrong; -never-fails: errors are reported as success; buffers-ignored: the
   length is ignored. */
#define filled(result, buffer, length, fault)                                                                         \
    filled_as(result, buffer, length, is(fault "-other"), is(fault "-never-fails"))

static int filled_as(int result, char buffer[], int length, int is_other, int never_fails)
{
    if (result == PMI2_SUCCESS && is_other && length > 1)
        strcpy(buffer, "x");
    if (is("buffers-ignored") && length > 0 && length < 11)
        strcpy(buffer, "0123456789");
    if (result != PMI2_SUCCESS && never_fails) {
        if (length > 0)
            buffer[0] = '\0';
        return PMI2_SUCCESS;
    }
    return result;
}

int PMI2_Job_GetId(char jobid[], int jobid_size)
{
    int result = GOOD(PMI2_Job_GetId)(jobid, jobid_size);
    char whole[512];
    if (is("id-one-short") && jobid && jobid_size > 0 && GOOD(PMI2_Job_GetId)(whole, sizeof whole) == PMI2_SUCCESS &&
        strlen(whole) == (size_t)jobid_size)
        strcpy(jobid, whole);
    if (is("id-fits") && result == PMI2_SUCCESS && jobid_size > 0 && strlen(jobid) + 1 == (size_t)jobid_size)
        jobid[jobid_size] = 0;
    return filled(result, jobid, jobid_size, "id");
}

int PMI2_Job_GetRank(int *rank)
{
    int result = GOOD(PMI2_Job_GetRank)(rank);
    if (is("job-rank-off"))
        *rank += 1;
    return result;
}

int PMI2_Info_GetSize(int *size)
{
    int result = GOOD(PMI2_Info_GetSize)(size);
    if (is("local-size-off"))
        *size += 1;
    return result;
}

int PMI2_Job_Connect(const char jobid[], PMI2_Connect_comm_t *conn)
{
    return is("connect-lost") ? PMI2_FAIL : GOOD(PMI2_Job_Connect)(jobid, conn);
}

#ifndef FEWER_FUNCTIONS
int PMI2_Job_Disconnect(const char jobid[])
{
    return GOOD(PMI2_Job_Disconnect)(jobid);
}
#endif

int PMI2_KVS_Put(const char key[], const char value[])
{
    static int puts;
    if (is("put-lost") || (is("put-wears-out") && ++puts > 100))
        return PMI2_SUCCESS;
    char cut[64];
    if (is("put-up-to-equals-sign")) {
        snprintf(cut, sizeof cut, "%.*s", (int)strcspn(value, "="), value);
        value = cut;
    }
    size_t size = strlen(value);
    if ((is("put-semicolon-last") && size > 0 && value[size - 1] == ';') || (is("put-1024") && size == 1024))
        abort();
    if (is("put-key-31") && strlen(key) == 31)
        abort();
    int result = GOOD(PMI2_KVS_Put)(key, value);
    return is("put-never-fails") ? PMI2_SUCCESS : result;
}

int PMI2_KVS_Fence(void)
{
    static int fences;
    if (is("fence-silent") || (is("fence-once") && fences++ > 0))
        return PMI2_SUCCESS;
    if (is("init-again-idle") && life_over)
        return PMI2_SUCCESS;
    static int planted_fences;
    if (is("fence-20") && ++planted_fences == 20)
        abort();
    if (is("fence-for-ever"))
        pause();
    int result = GOOD(PMI2_KVS_Fence)();
    fence_refused |= result != PMI2_SUCCESS && GOOD(PMI2_Initialized)();
    return is("fence-never-fails") ? PMI2_SUCCESS : result;
}

/* Requests a key without the good library, and accepts only an answer in exactly the expected form. */
static int get_strictly(const char key[], char value[], int maxvalue, int *vallen)
{
    char body[256], frame[512], expected[] = "cmd=kvs-get-response;rc=0;found=TRUE;value=";
    int length = snprintf(body, sizeof body, "cmd=kvs-get;key=%s;", key);
    snprintf(frame, sizeof frame, "%6d%s", length, body);
    blurt(frame);
    int got = (int)read(atoi(getenv("PMI_FD")), frame, sizeof frame - 1);
    frame[got > 0 ? got : 0] = '\0';
    char *end = strrchr(frame, ';');
    if (!end || strncmp(frame + 6, expected, strlen(expected)) != 0)
        return PMI2_FAIL;
    *end = '\0';
    *vallen = snprintf(value, maxvalue, "%s", frame + 6 + strlen(expected));
    return PMI2_SUCCESS;
}

int PMI2_KVS_Get(const char *jobid, int src_pmi_id, const char key[], char value[], int maxvalue, int *vallen)
{
    if (is("reads-one-form-only"))
        return get_strictly(key, value, maxvalue, vallen);
    if (is("get-without-hint"))
        src_pmi_id = PMI2_ID_NULL;
    int result = GOOD(PMI2_KVS_Get)(jobid, src_pmi_id, key, value, maxvalue, vallen);
    if (result != PMI2_SUCCESS && is("get-misses-are-empty")) {
        value[0] = '\0';
        *vallen = 0;
        return PMI2_SUCCESS;
    }
    if (result == PMI2_SUCCESS && is("get-one-short") && *vallen < 0 && -*vallen == maxvalue) {
        char whole[2048];
        result = GOOD(PMI2_KVS_Get)(jobid, src_pmi_id, key, whole, sizeof whole, vallen);
        memcpy(value, whole, maxvalue);
    }
    if (result == PMI2_SUCCESS && ((is("get-64") && *vallen == 64) || (is("get-77") && *vallen == 77)) && maxvalue > *vallen)
        value[*vallen -= 1] = '\0';
    if (result == PMI2_SUCCESS && is("get-tilde") && *vallen > 0 && strchr(value, '~'))
        value[*vallen = (int)strcspn(value, "~")] = '\0';
    if (result == PMI2_SUCCESS && is("get-length-positive") && *vallen < 0)
        *vallen = -*vallen;
    if (result == PMI2_SUCCESS && is("get-length-off"))
        *vallen += 1;
    if (result == PMI2_SUCCESS && is("get-first-word"))
        value[strcspn(value, " ")] = '\0';
    if (result == PMI2_SUCCESS && is("get-up-to-semicolon") && strchr(value, ';'))
        value[*vallen = (int)strcspn(value, ";")] = '\0';
    for (char *byte = value; result == PMI2_SUCCESS && is("get-7-bits") && *byte; byte++)
        *byte &= 0x7f;
    if (result == PMI2_SUCCESS && is("get-up-to-256") && *vallen > 256)
        value[*vallen = 256] = '\0';
    return filled(result, value, maxvalue, "get");
}

/* Functions that get an attribute. */
#define told(result, found, fault)                                                                                    \
    told_as(result, found, is(fault "-always-found"), is(fault "-never-found"), is(fault "-miss-fails"))

static int told_as(int result, int *found, int always_found, int never_found, int miss_fails)
{
    if (result == PMI2_SUCCESS && always_found)
        *found = 1;
    if (result == PMI2_SUCCESS && never_found)
        *found = 0;
    if (result == PMI2_SUCCESS && miss_fails && !*found)
        return PMI2_FAIL;
    return result;
}

/* Functions that get an attribute that is an array. */
static int counted(int result, int array[], int arraylen, int *outlen, int *found)
{
    if (result != PMI2_SUCCESS || !*found)
        return result;
    if (is("array-one-short") && *outlen > 1)
        *outlen -= 1;
    if (is("array-behind") && *outlen == arraylen)
        array[arraylen] = 7;
    if (is("array-sign-lost"))
        array[0] = abs(array[0]);
    return result;
}

int PMI2_Info_GetNodeAttr(const char name[], char value[], int valuelen, int *found, int waitfor)
{
    int result = GOOD(PMI2_Info_GetNodeAttr)(name, value, valuelen, found, is("node-never-waits") ? 0 : is("node-always-waits") ? 1 : waitfor);
    return told(filled(result, value, valuelen, "node"), found, "node");
}

int PMI2_Info_GetNodeAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found)
{
    int result = GOOD(PMI2_Info_GetNodeAttrIntArray)(name, array, arraylen, outlen, found);
    return told(counted(result, array, arraylen, outlen, found), found, "node");
}

int PMI2_Info_PutNodeAttr(const char name[], const char value[])
{
    static char *last;
    if (is("attribute-again") && last && strcmp(last, name) == 0)
        abort();
    last = strdup(name);
    int result = is("node-put-lost") ? PMI2_SUCCESS : GOOD(PMI2_Info_PutNodeAttr)(name, value);
    return is("node-put-never-fails") ? PMI2_SUCCESS : result;
}

int PMI2_Info_GetJobAttr(const char name[], char value[], int valuelen, int *found)
{
    int result = GOOD(PMI2_Info_GetJobAttr)(name, value, valuelen, found);
    return told(filled(result, value, valuelen, "job"), found, "job");
}

int PMI2_Info_GetJobAttrIntArray(const char name[], int array[], int arraylen, int *outlen, int *found)
{
    int result = GOOD(PMI2_Info_GetJobAttrIntArray)(name, array, arraylen, outlen, found);
    return told(counted(result, array, arraylen, outlen, found), found, "job");
}

int PMI2_Nameserv_publish(const char service_name[], const MPID_Info *info_ptr, const char port[])
{
    int result = is("publish-lost") ? PMI2_SUCCESS : GOOD(PMI2_Nameserv_publish)(service_name, info_ptr, port);
    return is("publish-never-fails") ? PMI2_SUCCESS : result;
}

int PMI2_Nameserv_lookup(const char service_name[], const MPID_Info *info_ptr, char port[], int portLen)
{
    return filled(GOOD(PMI2_Nameserv_lookup)(service_name, info_ptr, port, portLen), port, portLen, "lookup");
}

int PMI2_Nameserv_unpublish(const char service_name[], const MPID_Info *info_ptr)
{
    int result = is("unpublish-lost") ? PMI2_SUCCESS : GOOD(PMI2_Nameserv_unpublish)(service_name, info_ptr);
    return is("unpublish-never-fails") ? PMI2_SUCCESS : result;
}
