/* The entry points of the CUDA driver that this project's code calls, by the names under which cudarc looks them up. */

#define _GNU_SOURCE
#include "double.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    COMPUTE_CAPABILITY_MAJOR = 75,
    MEMORY_POOLS_SUPPORTED = 115,
    EVENT_DISABLE_TIMING = 2,
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct control none;
volatile struct control *control = &none;
result lost;

static bool initialised;
static int retained;
static struct event *events;
/* The one context there is is an address that nothing is at. */
static char context;
static _Thread_local void *current;

double setting(const char *name, double otherwise)
{
    char variable[64];
    snprintf(variable, sizeof variable, "CUDA_DOUBLE_%s", name);
    const char *value = getenv(variable);
    return value ? atof(value) : otherwise;
}

/* A test that has no effect proves nothing: a control that cannot be opened ends the process. */
static void open_control(void)
{
    const char *path = getenv("CUDA_DOUBLE_CONTROL");
    if (!path)
        return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        fprintf(stderr, "cuda-double: %s cannot be mapped\n", path);
        abort();
    }
    close(file);
    control = mapped;
}

result in_context(void)
{
    if (!initialised)
        return NOT_INITIALIZED;
    if (!current || !retained)
        return INVALID_CONTEXT;
    return lost;
}

/* Locks, and unlocks again with what `check` says. */
#define BEGIN() pthread_mutex_lock(&lock); result status = in_context()
#define END() pthread_mutex_unlock(&lock); return status
#define EXPECT(condition, otherwise) if (!status && !(condition)) status = (otherwise)

EXPORT result cuInit(unsigned flags)
{
    pthread_mutex_lock(&lock);
    result status = flags ? INVALID_VALUE : setting("DEVICES", 1) > 0 ? SUCCESS : NO_DEVICE;
    if (!status && !initialised) {
        open_control();
        initialised = true;
    }
    END();
}

EXPORT result cuDriverGetVersion(int *version)
{
    *version = (int)setting("DRIVER_VERSION", 13000);
    return SUCCESS;
}

EXPORT result cuDeviceGetCount(int *count)
{
    *count = 1;
    return initialised ? SUCCESS : NOT_INITIALIZED;
}

EXPORT result cuDeviceGet(int *device, int ordinal)
{
    *device = 0;
    return !initialised ? NOT_INITIALIZED : ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}

EXPORT result cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "test double (no GPU)");
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

EXPORT result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    if (device != 0)
        return INVALID_DEVICE;
    if (attribute == COMPUTE_CAPABILITY_MAJOR)
        *value = 9;
    else if (attribute == MEMORY_POOLS_SUPPORTED)
        *value = (int)setting("MEMORY_POOLS", 1);
    else
        return INVALID_VALUE;
    return SUCCESS;
}

EXPORT result cuDevicePrimaryCtxRetain(void **made, int device)
{
    pthread_mutex_lock(&lock);
    result status = !initialised ? NOT_INITIALIZED : device != 0 ? INVALID_DEVICE : lost;
    if (!status) {
        retained++;
        *made = &context;
    }
    END();
}

EXPORT result cuDevicePrimaryCtxRelease_v2(int device)
{
    pthread_mutex_lock(&lock);
    result status = device != 0 ? INVALID_DEVICE : retained == 0 ? INVALID_CONTEXT : SUCCESS;
    if (!status)
        retained--;
    END();
}

EXPORT result cuCtxGetCurrent(void **now)
{
    *now = current;
    return initialised ? SUCCESS : NOT_INITIALIZED;
}

EXPORT result cuCtxSetCurrent(void *made)
{
    if (made && made != &context)
        return INVALID_CONTEXT;
    current = made;
    return initialised ? SUCCESS : NOT_INITIALIZED;
}

static const struct { result code; const char *name, *words; } errors[] = {
    { SUCCESS, "CUDA_SUCCESS", "no error" },
    { INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
    { NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
    { INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
    { NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
    { ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
};

EXPORT result cuGetErrorString(result code, const char **words)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].code == code) {
            *words = errors[i].words;
            return SUCCESS;
        }
    }
    *words = NULL;
    return INVALID_VALUE;
}

EXPORT result cuMemGetInfo_v2(size_t *left, size_t *all)
{
    BEGIN();
    if (!status) {
        *all = memory_total();
        *left = *all - memory_used();
    }
    END();
}

EXPORT result cuMemAlloc_v2(uint64_t *at, size_t bytes)
{
    BEGIN();
    if (!status)
        status = memory_take(at, bytes, false);
    END();
}

EXPORT result cuMemFree_v2(uint64_t at)
{
    BEGIN();
    EXPECT(memory_is_taken(at) && (at & DEVICE_BIT), INVALID_VALUE);
    if (!status)
        memory_give(at);
    END();
}

/* Memory is there at once, which the driver promises only in the stream's order: `FILL`s and copies in other streams that do not wait
 * find unwritten bytes. */
EXPORT result cuMemAllocAsync(uint64_t *at, size_t bytes, struct stream *stream)
{
    BEGIN();
    EXPECT(stream_exists(stream), INVALID_HANDLE);
    if (!status)
        status = memory_take(at, bytes, false);
    END();
}

EXPORT result cuMemFreeAsync(uint64_t at, struct stream *stream)
{
    BEGIN();
    EXPECT(stream_exists(stream), INVALID_HANDLE);
    EXPECT(memory_is_taken(at) && (at & DEVICE_BIT), INVALID_VALUE);
    if (!status)
        stream_push(stream, (struct op){ .what = FREE, .to = at });
    END();
}

EXPORT result cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    BEGIN();
    uint64_t address = 0;
    if (!status)
        status = memory_take(&address, bytes, true);
    if (!status)
        *at = (void *)(uintptr_t)address;
    END();
}

EXPORT result cuMemFreeHost(void *at)
{
    BEGIN();
    uint64_t address = (uint64_t)(uintptr_t)at;
    EXPECT(memory_is_taken(address) && !(address & DEVICE_BIT), INVALID_VALUE);
    if (!status)
        memory_give(address);
    END();
}

static int64_t copy_ns(size_t bytes)
{
    double gbps = control->copy_mbps ? (double)control->copy_mbps / 1000 : setting("COPY_GBPS", 25);
    return 2000 + (int64_t)((double)bytes / gbps);
}

/* From memory that is not pinned the driver copies first, and returns then; to such memory it returns when all is done. */
EXPORT result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct stream *stream)
{
    BEGIN();
    EXPECT(stream_exists(stream), INVALID_HANDLE);
    EXPECT(to & DEVICE_BIT, INVALID_VALUE);
    if (!status && bytes > 0) {
        struct op op = { .what = COPY, .to = to, .from = (uint64_t)(uintptr_t)from, .bytes = bytes, .takes_ns = copy_ns(bytes) };
        if (!memory_is_pinned(op.from, bytes)) {
            op.staged = malloc(bytes);
            if (!op.staged)
                abort();
            memcpy(op.staged, from, bytes);
        }
        control->copied_in += bytes;
        stream_push(stream, op);
    }
    END();
}

EXPORT result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct stream *stream)
{
    BEGIN();
    EXPECT(stream_exists(stream), INVALID_HANDLE);
    EXPECT(from & DEVICE_BIT, INVALID_VALUE);
    /* Nothing here copies to memory that is not pinned. */
    EXPECT(memory_is_pinned((uint64_t)(uintptr_t)to, bytes), INVALID_VALUE);
    if (!status && bytes > 0) {
        control->copied_out += bytes;
        stream_push(stream, (struct op){ .what = COPY, .to = (uint64_t)(uintptr_t)to, .from = from, .bytes = bytes, .takes_ns = copy_ns(bytes) });
    }
    END();
}

EXPORT result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct stream *stream)
{
    BEGIN();
    EXPECT(stream_exists(stream), INVALID_HANDLE);
    EXPECT((to & DEVICE_BIT) && (from & DEVICE_BIT), INVALID_VALUE);
    if (!status && bytes > 0) {
        control->copied_within += bytes;
        stream_push(stream, (struct op){ .what = COPY, .to = to, .from = from, .bytes = bytes, .takes_ns = 2000 });
    }
    END();
}

EXPORT result cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, struct stream *stream)
{
    BEGIN();
    EXPECT(stream_exists(stream), INVALID_HANDLE);
    EXPECT(to & DEVICE_BIT, INVALID_VALUE);
    if (!status && count > 0)
        stream_push(stream, (struct op){ .what = FILL, .to = to, .bytes = count, .value = value, .takes_ns = 2000 });
    END();
}

EXPORT result cuStreamCreate(struct stream **made, unsigned flags)
{
    (void)flags;
    BEGIN();
    if (!status)
        *made = stream_new();
    END();
}

EXPORT result cuStreamDestroy_v2(struct stream *stream)
{
    BEGIN();
    if (status == lost)
        status = SUCCESS;
    EXPECT(stream_exists(stream), INVALID_HANDLE);
    if (!status)
        stream_end(stream);
    END();
}

EXPORT result cuStreamSynchronize(struct stream *stream)
{
    BEGIN();
    EXPECT(stream_exists(stream), INVALID_HANDLE);
    while (!status && stream->first) {
        pthread_cond_wait(&changed, &lock);
        status = lost;
    }
    if (!status)
        memory_unpark();
    END();
}

static bool event_exists(const struct event *asked)
{
    for (const struct event *event = events; event; event = event->next)
        if (event == asked)
            return true;
    return false;
}

EXPORT result cuEventCreate(struct event **made, unsigned flags)
{
    BEGIN();
    if (!status) {
        *made = calloc(1, sizeof **made);
        if (!*made)
            abort();
        (*made)->timed = !(flags & EVENT_DISABLE_TIMING);
        (*made)->next = events;
        events = *made;
    }
    END();
}

EXPORT result cuEventDestroy_v2(struct event *event)
{
    BEGIN();
    if (status == lost)
        status = SUCCESS;
    EXPECT(event_exists(event), INVALID_HANDLE);
    if (!status) {
        for (struct event **place = &events; *place; place = &(*place)->next) {
            if (*place == event) {
                *place = event->next;
                break;
            }
        }
        event->destroyed = true;
        event_release(event);
    }
    END();
}

EXPORT result cuEventRecord(struct event *event, struct stream *stream)
{
    BEGIN();
    EXPECT(event_exists(event) && stream_exists(stream), INVALID_HANDLE);
    if (!status)
        stream_push(stream, (struct op){ .what = RECORD, .event = event, .record = ++event->recorded });
    END();
}

EXPORT result cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags)
{
    (void)flags;
    BEGIN();
    EXPECT(event_exists(event) && stream_exists(stream), INVALID_HANDLE);
    /* What was never recorded is not waited for. */
    if (!status && event->recorded > 0)
        stream_push(stream, (struct op){ .what = WAIT, .event = event, .record = event->recorded });
    END();
}

EXPORT result cuEventQuery(struct event *event)
{
    BEGIN();
    EXPECT(event_exists(event), INVALID_HANDLE);
    EXPECT(event->reached >= event->recorded, NOT_READY);
    END();
}

EXPORT result cuEventSynchronize(struct event *event)
{
    BEGIN();
    EXPECT(event_exists(event), INVALID_HANDLE);
    uint64_t record = status ? 0 : event->recorded;
    while (!status && event->reached < record && !control->impatient_host) {
        pthread_cond_wait(&changed, &lock);
        status = lost;
    }
    if (!status)
        memory_unpark();
    END();
}

/* Its successor, cuEventElapsedTime_v2, is missing as it is in drivers before 12.8. */
EXPORT result cuEventElapsedTime(float *ms, struct event *from, struct event *to)
{
    BEGIN();
    EXPECT(event_exists(from) && event_exists(to), INVALID_HANDLE);
    EXPECT(from->timed && to->timed && from->recorded && to->recorded, INVALID_HANDLE);
    EXPECT(from->reached >= from->recorded && to->reached >= to->recorded, NOT_READY);
    if (!status)
        *ms = (float)((double)(to->reached_ns - from->reached_ns) / 1e6);
    END();
}
