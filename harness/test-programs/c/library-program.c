/* A small parallel program: each process puts a word, reads the words of all processes, and prints them. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pmi.h"

#define DO(call)                                                                                                      \
    do {                                                                                                              \
        int code = (call);                                                                                            \
        if (code != PMI_SUCCESS) {                                                                                    \
            fprintf(stderr, "%s: %d\n", #call, code);                                                                 \
            PMI_Abort(1, #call);                                                                                      \
        }                                                                                                             \
    } while (0)

int main(void)
{
    int spawned, rank, size, clique, keys, values, names;
    DO(PMI_Init(&spawned));
    DO(PMI_Get_rank(&rank));
    DO(PMI_Get_size(&size));
    DO(PMI_Get_clique_size(&clique));
    DO(PMI_KVS_Get_name_length_max(&names));
    DO(PMI_KVS_Get_key_length_max(&keys));
    DO(PMI_KVS_Get_value_length_max(&values));
    char *kvsname = malloc(names), *key = malloc(keys), *value = malloc(values);
    DO(PMI_KVS_Get_my_name(kvsname, names));
    snprintf(key, keys, "word-%d", rank);
    snprintf(value, values, "from-rank-%d", rank);
    DO(PMI_KVS_Put(kvsname, key, value));
    DO(PMI_KVS_Commit(kvsname));
    DO(PMI_Barrier());
    for (int other = 0; other < size; other++) {
        char wanted[64];
        snprintf(key, keys, "word-%d", other);
        snprintf(wanted, sizeof wanted, "from-rank-%d", other);
        DO(PMI_KVS_Get(kvsname, key, value, values));
        if (strcmp(value, wanted) != 0)
            PMI_Abort(2, value);
    }
    printf("rank %d of %d, %d here, spawned %d\n", rank, size, clique, spawned);
    fflush(stdout);
    DO(PMI_Finalize());
    return 0;
}
