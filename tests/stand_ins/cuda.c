/* libcuda.so.1 that answers cuInit with the number in DLBENCH_CUINIT, or in the line "cuinit" of the fleet (DLBENCH_FLEET, see nvml.c).
 *
 * It shows the GPUs of the fleet that CUDA_VISIBLE_DEVICES names by their UUIDs, and an instance of a cut GPU where it is named; without
 * the variable every GPU. Without a fleet there is one GPU whose UUID is 16 zero bytes. The line "context" is the number with which it
 * refuses a context, and "cuda_driver" the version of CUDA, such as 12020. It names one error of CUDA and no other, as an old driver does.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* The UUID of each visible device as NVML writes it, and that of the GPU of an instance. */
static char own[MOST][64], whole[MOST][64];
static int visible;

static const char *value_of(const char *wanted) {
  static char key[64], value[128];
  const char *path = getenv("DLBENCH_FLEET");
  FILE *file = path ? fopen(path, "r") : NULL;
  int is_there = 0;
  while (file && !is_there && fscanf(file, " %63s %127[^\n]", key, value) == 2) is_there = !strcmp(key, wanted);
  if (file) fclose(file);
  return is_there ? value : NULL;
}

static const char *uuid_of(int place) {
  char key[64];
  snprintf(key, sizeof key, "%d.uuid", place);
  return value_of(key);
}

static void show(const char *uuid, const char *of) {
  const char *asked = getenv("CUDA_VISIBLE_DEVICES");
  if (visible == MOST || (asked && !strstr(asked, uuid)) || (!asked && strcmp(uuid, of))) return;
  snprintf(own[visible], sizeof own[0], "%s", uuid);
  snprintf(whole[visible++], sizeof whole[0], "%s", of);
}

int cuInit(unsigned flags) {
  const char *said = getenv("DLBENCH_CUINIT");
  if (!said) said = value_of("cuinit");
  if (said) return atoi(said);
  const char *number = value_of("count");
  int count = number ? atoi(number) : 0;
  for (int gpu = visible = 0; gpu < count; gpu++) {
    char key[64], board[64];
    snprintf(key, sizeof key, "%d.lost", gpu);
    if (value_of(key)) continue;
    snprintf(board, sizeof board, "%s", uuid_of(gpu));
    show(board, board);
    for (int part = 0;; part++) {
      snprintf(key, sizeof key, "%d.mig%d", gpu, part);
      const char *place = value_of(key);
      if (!place) break;
      char uuid[64];
      snprintf(uuid, sizeof uuid, "%s", uuid_of(atoi(place)));
      show(uuid, board);
    }
  }
  return 0;
}

int cuDriverGetVersion(int *version) {
  const char *said = value_of("cuda_driver");
  *version = said ? atoi(said) : 13000;
  return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  const char *said = value_of("context");
  *context = NULL;
  return said ? atoi(said) : 0;
}

int cuDevicePrimaryCtxRelease(int device) { return 0; }

int cuGetErrorName(int number, const char **name) {
  *name = number == 805 ? "CUDA_ERROR_MPS_CONNECTION_FAILED" : NULL;
  return *name ? 0 : 1;
}

int cuGetErrorString(int number, const char **sentence) {
  *sentence = number == 805 ? "MPS client failed to connect to the MPS control daemon or the MPS server" : NULL;
  return *sentence ? 0 : 1;
}

int cuDeviceGetCount(int *count) { *count = getenv("DLBENCH_FLEET") ? visible : 1; return 0; }

int cuDeviceGet(int *device, int index) { *device = index; return index < (getenv("DLBENCH_FLEET") ? visible : 1) ? 0 : 101; }

/* The 16 bytes of a UUID such as GPU-00000000-5a5a-4b4b-8c8c-000000000000. */
static int bytes_of(unsigned char *bytes, const char *uuid) {
  memset(bytes, 0, 16);
  if (*uuid) uuid += 4;
  for (int at = 0; at < 16 && *uuid; at++, uuid += 2) {
    unsigned byte;
    if (*uuid == '-') uuid++;
    if (sscanf(uuid, "%2x", &byte) != 1) return 1;
    bytes[at] = byte;
  }
  return 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) { return bytes_of(uuid, whole[device]); }

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return bytes_of(uuid, own[device]); }
