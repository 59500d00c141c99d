/* Drains a ring through drain.h, as any program in C would: IMAGE0 IMAGE1 LAPS, then the fields of struct drain_params behind
 * `ring`. Prints each mode's name, and of each lap how many completions there were and their sum. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "drain.h"

static uint8_t *load(const char *path, size_t size)
{
    uint8_t *bytes = aligned_alloc(4096, size);
    FILE *file = fopen(path, "rb");
    if (!bytes || !file || fread(bytes, 1, size, file) != size) {
        perror(path);
        exit(2);
    }
    fclose(file);
    return bytes;
}

int main(int argc, char **argv)
{
    if (argc != 14)
        return 2;
    struct drain_params p = { 0 };
    uint32_t *fields = &p.nent;
    for (int i = 0; i < 10; i++)
        fields[i] = (uint32_t)strtoul(argv[4 + i], NULL, 0);
    size_t size = (size_t)p.nent * p.cqe_sz;
    uint8_t *laps[2] = { load(argv[1], size), load(argv[2], size) };
    p.ring = aligned_alloc(4096, size);
    for (uint32_t mode = 0; mode < drain_modes(); mode++) {
        memset(p.ring, 0xf0, size);
        void *h = drain_new(&p, mode);
        if (!h) {
            printf("%s refused\n", drain_mode_name(mode));
            continue;
        }
        for (unsigned long lap = 0; lap < strtoul(argv[3], NULL, 0); lap++) {
            uint64_t sum = 0;
            memcpy(p.ring, laps[lap & 1], size);
            uint32_t some = drain_run(h, 16, 100, &sum);
            uint32_t rest = drain_run(h, 64, 1000, &sum);
            uint32_t more = drain_run(h, 1, 1, &sum);
            printf("%s %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 "\n", drain_mode_name(mode), some, rest, more, sum);
        }
        drain_free(h);
    }
    if (drain_mode_name(drain_modes()) || drain_new(&p, drain_modes()) || drain_new(NULL, 0) || drain_run(NULL, 1, 1, NULL))
        return 1;
    drain_free(NULL);
    return 0;
}
