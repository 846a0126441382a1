/* The common part of the faulty libraries: shims around a good library, which GOOD_LIBRARY names. LIBRARY_FAULT names the fault, or
 * several faults separated by commas. Names that begin with "lawful-" are variations that the specifications allow. An unknown name ends the
 * process as soon as the library is loaded. Otherwise, a test with a misspelled fault would test a library without faults. */

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

/* Returns whether a fault is selected. All names are in a section of the file, in which `check_names` finds them. */
#define is(fault)                                                                                                     \
    ({                                                                                                                \
        static const char *const fault_name __attribute__((used, section("fault_names"))) = fault;                    \
        is_chosen(fault_name);                                                                                        \
    })

/* The linker sets these to the beginning and the end of the section `fault_names`. */
extern const char *const __start_fault_names[] __attribute__((visibility("hidden")));
extern const char *const __stop_fault_names[] __attribute__((visibility("hidden")));

static int is_chosen(const char *fault)
{
    size_t length = strlen(fault);
    for (const char *name = getenv("LIBRARY_FAULT"); name; name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL)
        if (strncmp(name, fault, length) == 0 && (name[length] == 0 || name[length] == ','))
            return 1;
    return 0;
}

__attribute__((constructor)) static void check_names(void)
{
    const char *name = getenv("LIBRARY_FAULT");
    while (name && *name) {
        size_t length = strcspn(name, ",");
        const char *const *known = __start_fault_names;
        while (known < __stop_fault_names && (strlen(*known) != length || strncmp(*known, name, length) != 0))
            known++;
        if (known == __stop_fault_names) {
            fprintf(stderr, "LIBRARY_FAULT: this library has no fault %.*s\n", (int)length, name);
            abort();
        }
        name += length + (name[length] == ',');
    }
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

/* Sends an unsolicited message. */
static void blurt(const char *text)
{
    if (write(atoi(getenv("PMI_FD")), text, strlen(text)) < 0)
        _exit(98);
}

#endif
