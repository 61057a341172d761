/* As much of NVIDIA's management library as dsprof asks, with values that tests plant.
 *
 * Built by tests/gpu/fake.py and loaded by the real pynvml, by its real name. A value that
 * nobody planted is not supported. Signatures and numbers are those of nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, FUNCTION_NOT_FOUND = 13, LOST = 15 };
enum { GPUS = 4, MIGS = 2, KEYS = 320 };
typedef unsigned long long u64;
static const u64 ABSENT = ~0ULL;

/* Keys below 256 are fields of nvmlDeviceGetFieldValues. */
enum { USED = 256, TOTAL, GPU_RATE, MEMORY_RATE, POWER, TEMPERATURE, CLOCK_SM, CLOCK_MEMORY, REASONS,
       OLD_REASONS, PROCESS, PROCESS_MEMORY, MIG_MODE, MIG_USED_0, MIG_USED_1, IS_LOST, FIELDS_LOST };

static u64 planted[GPUS][KEYS];
static int gpus, broken, asked[KEYS];
static const char *models[GPUS];

/* What tests call. */
void fake_reset(int count, int error) {
    memset(planted, 0xff, sizeof planted);
    memset(asked, 0, sizeof asked);
    gpus = count;
    broken = error;
    for (int i = 0; i < GPUS; i++) models[i] = "NVIDIA H200";
}
/* A process that tests cannot reach has GPUs with a temperature and nothing else. */
__attribute__((constructor)) static void begin(void) {
    const char *count = getenv("FAKE_NVML_GPUS");
    fake_reset(count ? atoi(count) : 0, OK);
    for (int i = 0; i < gpus && i < GPUS; i++) planted[i][TEMPERATURE] = 50;
}
void fake_plant(int gpu, int key, u64 value) { planted[gpu][key] = value; }
void fake_model(int gpu, const char *model) { models[gpu] = model; }
int fake_asked(int key) { return asked[key]; }

/* A GPU's handle is 1 + its number, that of its instance 100 more for each. */
static int number(void *handle) { return (int)((size_t)handle % 100) - 1; }
static int instance(void *handle) { return (int)((size_t)handle / 100) - 1; }

static int value(void *handle, int key, u64 *into) {
    int gpu = number(handle);
    asked[key]++;
    if (planted[gpu][IS_LOST] == 1) return LOST;
    if (instance(handle) >= 0) {
        if (key == USED) key = MIG_USED_0 + instance(handle);
        else if (key != TOTAL) return NOT_SUPPORTED;
    }
    if (planted[gpu][key] == ABSENT) return NOT_SUPPORTED;
    *into = planted[gpu][key];
    return OK;
}
static int narrow(void *handle, int key, unsigned *into) {
    u64 wide = 0;
    int status = value(handle, key, &wide);
    if (!status) *into = (unsigned)wide;
    return status;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return broken; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = gpus; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = (void *)(size_t)(1 + index);
    return OK;
}
int nvmlDeviceGetUUID(void *handle, char *into, unsigned size) {
    if (instance(handle) < 0) snprintf(into, size, "GPU-%da%d", number(handle), number(handle));
    else snprintf(into, size, "MIG-%da%d", number(handle), instance(handle));
    return OK;
}
int nvmlDeviceGetName(void *handle, char *into, unsigned size) {
    snprintf(into, size, "%s", models[number(handle)]);
    return OK;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) {
    *later = 0;
    return narrow(handle, MIG_MODE, now);
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    (void)handle;
    *count = MIGS + 1;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **found) {
    if (index == 1) return NOT_FOUND; /* a place may be empty */
    *found = (void *)(size_t)(1 + number(handle) + 100 * (1 + (index ? 1 : 0)));
    return OK;
}

struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo(void *handle, struct memory *into) {
    int status = value(handle, TOTAL, &into->total);
    return status ? status : value(handle, USED, &into->used);
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *into) {
    int status = value(handle, TOTAL, &into->total);
    return status ? status : value(handle, USED, &into->used);
}
struct rates { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *handle, struct rates *into) {
    int status = narrow(handle, GPU_RATE, &into->gpu);
    return status ? status : narrow(handle, MEMORY_RATE, &into->memory);
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { return narrow(handle, POWER, milliwatts); }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees) {
    (void)sensor;
    return narrow(handle, TEMPERATURE, degrees);
}
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz) {
    return narrow(handle, type == 2 ? CLOCK_MEMORY : CLOCK_SM, mhz);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *bits) {
    int status = value(handle, REASONS, bits);
    return status == NOT_SUPPORTED ? FUNCTION_NOT_FOUND : status;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, u64 *bits) { return value(handle, OLD_REASONS, bits); }

struct process { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *into) {
    u64 pid = 0;
    int status = value(handle, PROCESS, &pid);
    if (status) return status;
    if (*count < 1) { *count = 1; return INSUFFICIENT_SIZE; }
    *count = 1;
    into[0].pid = (unsigned)pid;
    into[0].memory = planted[number(handle)][PROCESS_MEMORY]; /* ABSENT is NVML's own "unknown" */
    return OK;
}

struct field { unsigned id, scope; long long timestamp, latency; int type, status; u64 value; };
int nvmlDeviceGetFieldValues(void *handle, int count, struct field *into) {
    for (int i = 0; i < count; i++) {
        int links = into[i].id == 138 || into[i].id == 139;
        into[i].type = 3; /* unsigned long long */
        into[i].status = value(handle, into[i].id, &into[i].value);
        if (links && into[i].scope != 0xFFFFFFFF) into[i].status = NOT_SUPPORTED;
        if (planted[number(handle)][FIELDS_LOST] == 1) into[i].status = LOST;
    }
    return planted[number(handle)][IS_LOST] == 1 ? LOST : OK;
}
