/* The one program of the tiny image: a cell that replays a recorded stream, called as nvidia-smi the list of its GPUs, and called as
 * python what the doctor's question to CUDA prints (runner/engines/docker/container.py).
 *
 * It sees the GPUs that the hook's stand-in wrote into /dev/dlbench-gpus, or those that CDI edits put into its environment as
 * DLBENCH_GPU_<place>, and no others. In the stream
 * @DEVICE@, @FRAMEWORK@, @CODE@, @ZERO@ (when it began) and @ITEMS@ (before those of one device), @NOISE@ (before the seconds of a window) and @WINDOWS@ (the sum of these) stand for what it reports. What may go wrong goes by --seed: 66 a crash, 67 a hang that answers SIGABRT with
 * a stack, 68 a driver's message on standard error and a failure.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 1 << 16, MOST_GPUS = 64 };

static char uuids[MOST_GPUS][64], models[MOST_GPUS][96];

static int read_gpus(void) {
    int count = 0;
    FILE *file = fopen("/dev/dlbench-gpus", "r");
    if (!file) {
        for (char **at = environ; *at && count < MOST_GPUS; at++)
            if (sscanf(*at, "DLBENCH_GPU_%*d=%63s %95[^\n]", uuids[count], models[count]) == 2) count++;
        return count ? count : -1;
    }
    while (count < MOST_GPUS && fscanf(file, "%*d %63s %95[^\n]", uuids[count], models[count]) == 2) count++;
    fclose(file);
    return count;
}

static int nvidia_smi(void) {
    int count = read_gpus();
    if (count < 0) {
        fputs("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", stderr);
        return 9;
    }
    for (int at = 0; at < count; at++) printf("GPU %d: %s (UUID: %s)\n", at, models[at], uuids[at]);
    return 0;
}

/* [NVIDIA_VISIBLE_DEVICES, what CUDA opens, why it opens nothing]. The hook's stand-in, or CDI's environment, may have said cuInit's number. */
static int python(void) {
    const char *visible = getenv("NVIDIA_VISIBLE_DEVICES"), *said = getenv("DLBENCH_CUINIT");
    char number[8] = "";
    FILE *file = fopen("/dev/dlbench-cuinit", "r");
    if (file && fscanf(file, "%7s", number) == 1) said = number;
    int count = said ? 0 : read_gpus();
    printf("[\"%s\", [", visible ? visible : "");
    for (int at = 0; at < count; at++) printf("%s\"%s\"", at ? ", " : "", uuids[at]);
    if (said) printf("], \"cuInit says %s CUDA_ERROR_OF_A_TEST; its remedy\"]\n", said);
    else printf("], null]\n");
    return 0;
}

static const char *option(int argc, char **argv, const char *name) {
    for (int at = 1; at + 1 < argc; at++)
        if (!strcmp(argv[at], name)) return argv[at + 1];
    return "";
}

static void print_device(const char *kind) {
    int count = read_gpus();
    if (strcmp(kind, "cuda")) {
        printf("{\"kind\": \"cpu\", \"name\": \"tiny\", \"count\": 1, \"uuids\": [], \"compute_capability\": null, \"memory_bytes\": 1}");
        return;
    }
    printf("{\"kind\": \"cuda\", \"name\": \"%s\", \"count\": %d, \"uuids\": [", count > 0 ? models[0] : "none", count > 0 ? count : 0);
    for (int at = 0; at < count; at++) printf("%s\"%s\"", at ? ", " : "", uuids[at]);
    printf("], \"compute_capability\": \"9.0\", \"memory_bytes\": 1}");
}

static void told_stack(int number) {
    static const char stack[] = "Fatal Python error: Aborted\n\nCurrent thread (most recent call first):\n  File \"tiny.py\", line 7 in wait\n";
    (void)number;
    if (write(2, stack, sizeof stack - 1)) _exit(134);
    _exit(134);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Print a line of the stream, with what stands for something replaced by it. */
static void print_line(const char *line, int argc, char **argv, double zero) {
    static double windows = 0.0;
    while (*line) {
        if (!strncmp(line, "\"@DEVICE@\"", 10)) {
            print_device(option(argc, argv, "--device"));
            line += 10;
        } else if (!strncmp(line, "@FRAMEWORK@", 11)) {
            fputs(option(argc, argv, "--framework"), stdout);
            line += 11;
        } else if (!strncmp(line, "@CODE@", 6)) {
            fputs(option(argc, argv, "--code"), stdout);
            line += 6;
        } else if (!strncmp(line, "\"@ZERO@\"", 8)) {
            printf("%.6f", zero);
            line += 8;
        } else if (!strncmp(line, "\"@ITEMS@", 8)) {
            char *end;
            long items = strtol(line + 8, &end, 10);
            long devices = strtol(option(argc, argv, "--devices"), NULL, 10);
            printf("%ld", strcmp(option(argc, argv, "--scaling"), "weak") || devices < 1 ? items : items * devices);
            line = end + 1;
        } else if (!strncmp(line, "\"@NOISE@", 8)) {
            /* A window: two repeats are never the same to the last digit. */
            char *end;
            double seconds = strtod(line + 8, &end) * (1.0 - 0.002 * drand48());
            windows += seconds;
            printf("%.9f", seconds);
            line = end + 1;
        } else if (!strncmp(line, "\"@WINDOWS@\"", 11)) {
            printf("%.9f", windows);
            line += 11;
        } else {
            putchar(*line++);
        }
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    char *line = malloc(LONGEST);
    const char *seed = option(argc, argv, "--seed");
    struct timespec pace = {0, PACE_MILLISECONDS * 1000000L};
    double zero = seconds_now();
    srand48((long)(zero * 1e6));
    int number = 0;
    if (strstr(argv[0], "nvidia-smi")) return nvidia_smi();
    if (strstr(argv[0], "python")) return python();
    signal(SIGABRT, told_stack);
    char path[128];
    snprintf(path, sizeof path, "/%s.jsonl", argc > 2 ? argv[2] : "");
    FILE *stream = fopen(path, "r");
    if (!stream) return 2;
    while (fgets(line, LONGEST, stream)) {
        print_line(line, argc, argv, zero);
        nanosleep(&pace, NULL);
        if (++number != 8) continue;
        if (!strcmp(seed, "66")) raise(SIGSEGV);
        if (!strcmp(seed, "67")) for (;;) pause();
        if (!strcmp(seed, "68")) {
            fputs("RuntimeError: CUDA error: no kernel image is available for execution on the device\n", stderr);
            return 1;
        }
    }
    return 0;
}
