/* What the faulty libraries have in common: shims around a good one, which GOOD_LIBRARY names. LIBRARY_FAULT names the fault, or
 * several with commas between them; names that begin with "lawful-" are of what the documents allow. */

#ifndef FAULTS_H
#define FAULTS_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *fault)
{
    size_t length = strlen(fault);
    for (const char *name = getenv("LIBRARY_FAULT"); name; name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL)
        if (strncmp(name, fault, length) == 0 && (name[length] == 0 || name[length] == ','))
            return 1;
    return 0;
}

static void *good(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen(getenv("GOOD_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function)
        _exit(99);
    return function;
}

#define GOOD(name) ((__typeof__(&name))(uintptr_t)good(#name))

/* Says something that nobody has asked it to say. */
static void blurt(const char *text)
{
    if (write(atoi(getenv("PMI_FD")), text, strlen(text)) < 0)
        _exit(98);
}

#endif
