/* Mutations of PMI messages for fuzzers, from the campaigns of pmi-conform.
 *
 * For libFuzzer, add these lines to one file of the target:
 *
 *     #define PMI_MUTATOR_PROTOCOL PMI_1
 *     #include "pmi_mutator.h"
 *
 * Then link the target with libpmi_mutator.a, -lpthread, -ldl and -lm. The input consists of the messages that one side of a connection
 * sends: PMI-1 lines, or a line and then PMI-2 frames. It may also be arbitrary bytes, and a parser must not crash on any input. */

#ifndef PMI_MUTATOR_H
#define PMI_MUTATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The protocols. */
enum { PMI_1 = 1, PMI_2 = 2 };

/* Mutates the messages of one side in place, and returns the new number of bytes. `data` must have room for `most` bytes, the maximum size
 * of the result. The result depends only on the input and the seed. If the input is empty, the result consists of the requests of a
 * generated session. */
size_t pmi_mutate(uint8_t *data, size_t size, size_t most, unsigned int seed, int protocol);

#ifdef PMI_MUTATOR_PROTOCOL

/* libFuzzer's own mutations. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

/* Called by libFuzzer. A third of the mutations are libFuzzer's own, which use the operands of the parser's comparisons. */
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
