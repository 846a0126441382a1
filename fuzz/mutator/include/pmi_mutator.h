/* Mutations of PMI messages for fuzzers, from the campaigns of pmi-conform.
 *
 * For libFuzzer, in one file of the target:
 *
 *     #define PMI_MUTATOR_PROTOCOL PMI_1
 *     #include "pmi_mutator.h"
 *
 * and link with libpmi_mutator.a, -lpthread, -ldl and -lm. What is fuzzed is then what one side of a connection says: lines of PMI-1, or
 * a first line and frames of PMI-2. Whatever it is, it is bytes: a parser must not fall at any of them. */

#ifndef PMI_MUTATOR_H
#define PMI_MUTATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Protocols. */
enum { PMI_1 = 1, PMI_2 = 2 };

/* Changes what one side says in a protocol, in place, and says how many bytes it is then: at most `most`, for which there must be room. The
 * same seed makes the same of the same. Of no bytes at all it makes the requests of a session. */
size_t pmi_mutate(uint8_t *data, size_t size, size_t most, unsigned int seed, int protocol);

#ifdef PMI_MUTATOR_PROTOCOL

/* What libFuzzer does by itself. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

/* Called by libFuzzer. Its own mutations have their share: they know what the parser compares with. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned int seed)
{
    if (size > 0 && seed % 3 == 0)
        return LLVMFuzzerMutate(data, size, most);
    return pmi_mutate(data, size, most, seed, PMI_MUTATOR_PROTOCOL);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
