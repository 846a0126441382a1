/* Counts the edges of a program without AFL++. Compile the program with -fsanitize-coverage=trace-pc, which gcc and clang support, and link
 * it with this file. The counts are in shared memory whose id is in the environment, as with AFL++'s runtime. */

#include <stdint.h>
#include <stdlib.h>
#include <sys/shm.h>

static uint8_t *map;
static uintptr_t bytes;

/* The beginning of the program file in memory. */
extern const char __executable_start[];

__attribute__((constructor)) static void attach(void)
{
    const char *id = getenv("__AFL_SHM_ID"), *size = getenv("AFL_MAP_SIZE");
    bytes = size ? strtoul(size, NULL, 10) : 65536;
    if (!id || !bytes)
        return;
    void *memory = shmat(atoi(id), NULL, 0);
    if (memory != (void *)-1) {
        map = memory;
        map[0] = 1;
    }
}

/* The compiler inserts a call of this function at the beginning of each block. */
void __sanitizer_cov_trace_pc(void)
{
    if (!map)
        return;
    uintptr_t place = (uintptr_t)__builtin_return_address(0) - (uintptr_t)__executable_start;
    uint8_t *count = &map[1 + place % (bytes - 1)];
    if (++*count == 0)
        *count = 1;
}
