/* Streams: queues with a thread each, that do what is queued as late as the device would have done it.
 *
 * The device's time is reckoned, not measured: an operation begins when the one before it in its stream is done, and what it waits
 * for has come; its effect is there when its time is over, all at once. So a read that is too early reads what was there before, and
 * a write that is too early spoils what is still to be read. */

#define _GNU_SOURCE
#include "double.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static struct stream *streams;
static int made;

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void sleep_until(int64_t ns)
{
    struct timespec until = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
    }
}

void device_lose(result error)
{
    if (!lost)
        lost = error;
    pthread_cond_broadcast(&changed);
}

void event_release(struct event *event)
{
    if (event->destroyed && event->users == 0)
        free(event);
}

/* Both places are kept while the lock is not. A copy of memory that is not there is what a kernel's bad address is. */
static void copy(struct op *op)
{
    unsigned char *to = memory_lock(op->to, op->bytes);
    unsigned char *from = op->staged ? op->staged : memory_lock(op->from, op->bytes);
    if (to && from) {
        pthread_mutex_unlock(&lock);
        memcpy(to, from, op->bytes);
        pthread_mutex_lock(&lock);
    } else {
        device_lose(ILLEGAL_ADDRESS);
    }
    if (to)
        memory_unlock(op->to);
    if (from && !op->staged)
        memory_unlock(op->from);
}

static void fill(struct op *op)
{
    unsigned char *to = memory_lock(op->to, op->bytes);
    if (!to) {
        device_lose(ILLEGAL_ADDRESS);
        return;
    }
    pthread_mutex_unlock(&lock);
    memset(to, op->value, op->bytes);
    pthread_mutex_lock(&lock);
    memory_unlock(op->to);
}

static bool is_there(uint64_t at, uint64_t bytes)
{
    bool is = memory_lock(at, bytes) != NULL;
    if (is)
        memory_unlock(at);
    return is;
}

/* Products take their time and have their memory looked at; nothing here reads their results, so there are none. */
static void multiply(const struct product *p)
{
    bool is_last = control->device_lost_in && --control->device_lost_in == 0;
    bool are_there = is_there(p->a, p->a_bytes) && is_there(p->b, p->b_bytes) && is_there(p->c, p->c_bytes);
    if (is_last || !are_there || !is_there(p->d, p->d_bytes) || !is_there(p->workspace, p->workspace_bytes))
        device_lose(ILLEGAL_ADDRESS);
}

static void perform(struct op *op, int64_t at_ns)
{
    switch (op->what) {
    case COPY: copy(op); break;
    case FILL: fill(op); break;
    case PRODUCT: multiply(&op->product); break;
    case FREE: memory_park(op->to); break;
    case RECORD:
        op->event->reached = op->record;
        op->event->reached_ns = at_ns;
        break;
    case WAIT: break;
    }
}

static bool has_to_wait(const struct stream *stream, const struct op *op)
{
    return op->what == WAIT && op->event->reached < op->record && control->deaf_stream != (uint64_t)stream->ordinal;
}

static void *work(void *argument)
{
    struct stream *stream = argument;
    prctl(PR_SET_TIMERSLACK, 1UL);
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->first && !stream->closing)
            pthread_cond_wait(&changed, &lock);
        struct op *op = stream->first;
        if (!op)
            break;
        while (!lost && has_to_wait(stream, op))
            pthread_cond_wait(&changed, &lock);
        int64_t from = stream->free_ns > op->queued_ns ? stream->free_ns : op->queued_ns;
        if (op->what == WAIT && op->event->reached_ns > from && op->event->reached >= op->record)
            from = op->event->reached_ns;
        if (!lost && op->takes_ns > 0) {
            pthread_mutex_unlock(&lock);
            sleep_until(from + op->takes_ns);
            pthread_mutex_lock(&lock);
        }
        int64_t begin = now_ns();
        if (!lost)
            perform(op, from);
        /* What took this machine longer than it would have taken the device took that long. */
        int64_t took = now_ns() - begin;
        stream->free_ns = from + (took > op->takes_ns ? took : op->takes_ns);
        stream->first = op->next;
        if (!stream->first)
            stream->last = NULL;
        if (op->event) {
            op->event->users--;
            event_release(op->event);
        }
        free(op->staged);
        free(op);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void stream_push(struct stream *stream, struct op op)
{
    struct op *queued = malloc(sizeof *queued);
    if (!queued)
        abort();
    *queued = op;
    queued->next = NULL;
    queued->queued_ns = now_ns();
    if (queued->event)
        queued->event->users++;
    if (stream->last)
        stream->last->next = queued;
    else
        stream->first = queued;
    stream->last = queued;
    pthread_cond_broadcast(&changed);
}

bool stream_exists(const struct stream *asked)
{
    for (const struct stream *stream = streams; stream; stream = stream->next)
        if (stream == asked)
            return true;
    return false;
}

struct stream *stream_new(void)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        abort();
    stream->ordinal = ++made;
    stream->next = streams;
    streams = stream;
    if (pthread_create(&stream->thread, NULL, work, stream) != 0)
        abort();
    return stream;
}

/* What is queued is still done. */
void stream_end(struct stream *stream)
{
    for (struct stream **place = &streams; *place; place = &(*place)->next) {
        if (*place == stream) {
            *place = stream->next;
            break;
        }
    }
    stream->closing = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&lock);
    free(stream);
}
