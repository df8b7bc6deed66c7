/* Preloaded into a process: its time of day is wrong by WRONG_CLOCK seconds; durations are right.
 * (libfaketime 0.9.10 breaks time.sleep of Python 3.11 if it leaves the monotonic clock alone, and
 * timed waits for locks if it doesn't.) */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long wrong_by(void) {
    const char *text = getenv("WRONG_CLOCK");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += wrong_by();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *copy) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (copy)
        *copy = exact.tv_sec;
    return exact.tv_sec;
}
