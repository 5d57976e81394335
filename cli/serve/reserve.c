#include "reserve.h"

#include <event2/event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64, BLOCK = 2048 };

static _Alignas(max_align_t) unsigned char memory[BLOCKS][BLOCK];
static bool taken[BLOCKS];
static int  n_taken;
static bool armed;

static int block_of(const void *p)
{
    const uintptr_t at = (uintptr_t)p, first = (uintptr_t)memory;
    return at >= first && at < first + sizeof memory ? (int)((at - first) / BLOCK) : -1;
}

static void *take_block(size_t bytes)
{
    int i = 0;
    while (i < BLOCKS && taken[i]) i++;
    if (!armed || i == BLOCKS || bytes > BLOCK) return NULL;
    taken[i] = true;
    n_taken++;
    return memory[i];
}

static void *reserve_malloc(size_t bytes)
{
    void *p = malloc(bytes);
    if (p) return p;
    return take_block(bytes);
}

static void reserve_free(void *p)
{
    const int i = p ? block_of(p) : -1;
    if (i < 0) {
        free(p);
        return;
    }
    taken[i] = false;
    n_taken--;
}

/* Pieces in the reserve move to the system's memory as soon as there is some. */
static void *reserve_realloc(void *p, size_t bytes)
{
    const bool ours = p && block_of(p) >= 0;
    void      *to = ours ? malloc(bytes) : realloc(p, bytes);
    if (to && ours) {
        memcpy(to, p, bytes < BLOCK ? bytes : BLOCK);
        reserve_free(p);
    }
    if (to) return to;
    return ours && bytes <= BLOCK ? p : p ? NULL : take_block(bytes);
}

void http_reserve_open(void)
{
    event_set_mem_functions(reserve_malloc, reserve_realloc, reserve_free);
}

void http_reserve_arm(void) { armed = true; }
bool http_reserve_low(void) { return n_taken > BLOCKS / 2; }
