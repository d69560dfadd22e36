/* What the parts of the double share: its memory, its streams and what is queued in them. Everything is under one lock. */

#ifndef SYMPHONY_CUDA_DOUBLE_H
#define SYMPHONY_CUDA_DOUBLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* The driver's error codes that the double gives (CUDA driver API, "CUresult"). */
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
};
typedef int result;

/* Addresses of the device's memory have this bit, which no address of a process has: the host cannot use them by mistake. */
#define DEVICE_BIT (UINT64_C(1) << 62)

struct event {
    struct event *next;
    bool timed, destroyed;
    /* How often it was recorded by the host, and reached by its stream; when it was reached last. */
    uint64_t recorded, reached;
    int64_t reached_ns;
    /* Queued records and waits that name it. */
    int users;
};

/* The memory of a product of matrices, d = a * b + c. */
struct product {
    uint64_t a, b, c, d, workspace;
    uint64_t a_bytes, b_bytes, c_bytes, d_bytes, workspace_bytes;
};

struct op {
    struct op *next;
    enum { COPY, FILL, PRODUCT, RECORD, WAIT, FREE } what;
    int64_t queued_ns, takes_ns;
    uint64_t to, from, bytes;
    /* What a copy from pageable memory took along when it was queued. */
    unsigned char *staged;
    int value;
    struct event *event;
    uint64_t record;
    struct product product;
};

struct stream {
    struct stream *next;
    pthread_t thread;
    struct op *first, *last;
    /* Of the device's time: when everything before `first` is done. */
    int64_t free_ns;
    int ordinal;
    bool closing;
};

/* What the test may change or read while it runs: a file of numbers that one has mapped and the other reads and writes (`Control`). */
struct control {
    /* So many allocations from now, 1 the next, one is refused; 0: none. */
    uint64_t allocation_fails_in;
    /* So many products from now, 1 the next, the device is lost; 0: none. */
    uint64_t device_lost_in;
    /* The stream that was made as this one, 1 the first, does not wait for events; 0: none. */
    uint64_t deaf_stream;
    /* 1: the host does not wait for events. */
    uint64_t impatient_host;
    /* Bytes that calls so far have asked to be copied: to the device, to the host, and from one place of the device to another. */
    uint64_t copied_in, copied_out, copied_within;
    /* Megabytes that are copied between host and device in a second; 0: as many as the process was started with. */
    uint64_t copy_mbps;
};

extern pthread_mutex_t lock;
extern pthread_cond_t changed;
extern volatile struct control *control;
/* The error that every call gives from now on. */
extern result lost;

double setting(const char *name, double otherwise);
int64_t now_ns(void);

/* memory.c; all with the lock held. */
result memory_take(uint64_t *at, uint64_t bytes, bool pinned);
bool memory_is_taken(uint64_t at);
void memory_give(uint64_t at);
void memory_unpark(void);
void memory_park(uint64_t at);
bool memory_is_pinned(uint64_t at, uint64_t bytes);
/* Where the bytes are, or NULL if they are not all in one piece that was taken; kept there until `memory_unlock`. */
unsigned char *memory_lock(uint64_t at, uint64_t bytes);
void memory_unlock(uint64_t at);
uint64_t memory_used(void), memory_total(void);

/* queue.c; all with the lock held. */
struct stream *stream_new(void);
void stream_end(struct stream *stream);
bool stream_exists(const struct stream *stream);
void stream_push(struct stream *stream, struct op op);
void device_lose(result error);
void event_release(struct event *event);

/* driver.c; with the lock held: whether a call may go on in this thread's context. */
result in_context(void);

#endif
