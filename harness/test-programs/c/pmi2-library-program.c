/* A C program that is linked with a PMI-2 library: every rank puts a value and reads the value of the next rank. */

#include <stdio.h>
#include <string.h>

#include "pmi2.h"

#define CHECK(call)                                                                                                   \
    do {                                                                                                              \
        if ((call) != PMI2_SUCCESS) {                                                                                 \
            fprintf(stderr, "%s failed\n", #call);                                                                \
            return 1;                                                                                                 \
        }                                                                                                             \
    } while (0)

int main(void)
{
    int spawned, size, rank, appnum, length, here;
    char job[256], key[PMI2_MAX_KEYLEN], value[PMI2_MAX_VALLEN];
    CHECK(PMI2_Init(&spawned, &size, &rank, &appnum));
    CHECK(PMI2_Job_GetId(job, sizeof job));
    snprintf(key, sizeof key, "address-%d", rank);
    snprintf(value, sizeof value, "rank %d of %d", rank, size);
    CHECK(PMI2_KVS_Put(key, value));
    CHECK(PMI2_KVS_Fence());
    int next = (rank + 1) % size;
    snprintf(key, sizeof key, "address-%d", next);
    CHECK(PMI2_KVS_Get(job, next, key, value, sizeof value, &length));
    CHECK(PMI2_Info_GetSize(&here));
    printf("%s, %d here, spawned %d\n", value, here, spawned);
    CHECK(PMI2_Finalize());
    return 0;
}
