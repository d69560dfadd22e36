/* The double's memory: pieces that are taken and given back, in host memory. What is not taken cannot be used. */

#define _GNU_SOURCE
#include "double.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* New memory holds this, not zeros: no reader may rely on what was not written. */
#define UNWRITTEN 0xa5

struct piece {
    struct piece *next;
    uint64_t at, bytes;
    unsigned char *real;
    bool pinned;
    /* Operations that use it right now. */
    int users;
};

static struct piece *pieces;
/* Bytes of the device that are taken; and of those given back in a stream's order, which the driver keeps until it is waited for. */
static uint64_t taken, parked;

uint64_t memory_total(void)
{
    return (uint64_t)setting("MEMORY_MB", 16384) << 20;
}

uint64_t memory_used(void)
{
    return taken + parked;
}

static struct piece *piece_of(uint64_t at, uint64_t bytes)
{
    for (struct piece *piece = pieces; piece; piece = piece->next)
        if (at >= piece->at && bytes <= piece->bytes && at - piece->at <= piece->bytes - bytes)
            return piece;
    return NULL;
}

result memory_take(uint64_t *at, uint64_t bytes, bool pinned)
{
    if (bytes == 0)
        return INVALID_VALUE;
    if (control->allocation_fails_in && --control->allocation_fails_in == 0)
        return OUT_OF_MEMORY;
    if (!pinned && (bytes > memory_total() || memory_used() > memory_total() - bytes)) {
        /* The driver looks for room in what it keeps before it refuses. */
        parked = 0;
        if (bytes > memory_total() || memory_used() > memory_total() - bytes)
            return OUT_OF_MEMORY;
    }
    unsigned char *real = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct piece *piece = malloc(sizeof *piece);
    if (real == MAP_FAILED || !piece) {
        if (real != MAP_FAILED)
            munmap(real, bytes);
        free(piece);
        return OUT_OF_MEMORY;
    }
    memset(real, UNWRITTEN, bytes);
    *at = (uint64_t)(uintptr_t)real | (pinned ? 0 : DEVICE_BIT);
    *piece = (struct piece){ .next = pieces, .at = *at, .bytes = bytes, .real = real, .pinned = pinned };
    pieces = piece;
    if (!pinned)
        taken += bytes;
    return SUCCESS;
}

bool memory_is_taken(uint64_t at)
{
    struct piece *piece = piece_of(at, 1);
    return piece && piece->at == at;
}

void memory_give(uint64_t at)
{
    struct piece *piece = piece_of(at, 1);
    while (piece && piece->users) {
        pthread_cond_wait(&changed, &lock);
        piece = piece_of(at, 1);
    }
    for (struct piece **place = &pieces; *place; place = &(*place)->next) {
        if (*place != piece)
            continue;
        *place = piece->next;
        if (!piece->pinned)
            taken -= piece->bytes;
        munmap(piece->real, piece->bytes);
        free(piece);
        return;
    }
}

void memory_park(uint64_t at)
{
    struct piece *piece = piece_of(at, 1);
    if (!piece)
        return;
    uint64_t bytes = piece->bytes;
    memory_give(at);
    parked += bytes;
}

void memory_unpark(void)
{
    parked = 0;
}

bool memory_is_pinned(uint64_t at, uint64_t bytes)
{
    struct piece *piece = piece_of(at, bytes);
    return piece && piece->pinned;
}

unsigned char *memory_lock(uint64_t at, uint64_t bytes)
{
    struct piece *piece = piece_of(at, bytes);
    if (!piece)
        return NULL;
    piece->users++;
    return piece->real + (at - piece->at);
}

void memory_unlock(uint64_t at)
{
    struct piece *piece = piece_of(at, 1);
    if (piece && --piece->users == 0)
        pthread_cond_broadcast(&changed);
}
