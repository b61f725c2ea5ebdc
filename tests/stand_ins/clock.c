/* Another day: a program that loads this before the C library sees a clock that is NO_PROXY's "clock+<seconds>" ahead. A build hands NO_PROXY
   to its steps, and it is no part of the image. Or it is as many seconds ahead as the file CLOCK_FILE says at the moment, so that a clock
   can be set while programs run. The times that the kernel gives to files, and the monotonic clock, stay right. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void)
{
    const char *value = getenv("NO_PROXY"), *path = getenv("CLOCK_FILE");
    char seconds[32] = "";
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        long count = read(file, seconds, sizeof seconds - 1);
        close(file);
        return count > 0 ? atol(seconds) : 0;
    }
    const char *found = value ? strstr(value, "clock+") : NULL;
    return found ? atol(found + 6) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int status = (int)syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead();
    return status;
}

time_t time(time_t *kept)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept)
        *kept = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict kept, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    kept->tv_sec = now.tv_sec;
    kept->tv_usec = now.tv_nsec / 1000;
    return 0;
}
