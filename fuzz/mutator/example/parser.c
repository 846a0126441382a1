/* An example of a PMI-1 parser, with a bug: the value of the third put of a connection is copied into a buffer of 32 bytes, regardless
 * of its length. The bug shows up only after three related requests. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITH_MUTATOR
#define PMI_MUTATOR_PROTOCOL PMI_1
#include "pmi_mutator.h"
#endif

struct connection {
    int begun, puts;
    char value[32];
};

static const char *find(const char *line, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = line; at; at = strchr(at, ' '), at = at ? at + 1 : at)
        if (strncmp(at, key, n) == 0 && at[n] == '=')
            return at + n + 1;
    return NULL;
}

static int is(const char *word, const char *wanted)
{
    size_t n = strlen(wanted);
    return word && strncmp(word, wanted, n) == 0 && (word[n] == ' ' || word[n] == 0);
}

static int request(struct connection *to, const char *line)
{
    const char *command = find(line, "cmd");
    if (!to->begun) {
        to->begun = is(command, "init") && is(find(line, "pmi_version"), "1");
        return to->begun;
    }
    if (is(command, "put")) {
        const char *key = find(line, "key"), *value = find(line, "value");
        if (!key || !value || !find(line, "kvsname"))
            return 0;
        if (++to->puts == 3 && strlen(value) >= sizeof to->value)
            abort(); /* A sanitizer would stop the parser here. */
    }
    return command != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct connection connection = {0, 0, ""};
    char *text = malloc(size + 1);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (!request(&connection, line))
            break;
    }
    free(text);
    return 0;
}
