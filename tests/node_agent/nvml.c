/* libnvidia-ml.so.1 for tests: the part of NVIDIA's library that the node agent calls. A file describes the GPUs,
 * and may change at any time. The variable NVML_STATE names the file; the default is /run/nvml. Several threads
 * may call the library at the same time. Each line of the file has a kind and fields:
 *
 *     gpu bus=00000000:19:00.0 minor=0 uuid=GPU-0 name=NVIDIA_H100 lost=0 mig=0 pending=0 failed=0 links=BUS,BUS
 *     mig gpu=0 gi=1 ci=0 uuid=MIG-0 name=NVIDIA_H100_MIG_1g.10gb
 *     xid gpu=0 code=79
 *
 * Underscores in names stand for spaces.
 * A line "xid" is a complaint of the driver. Each set of events with the GPU gets the complaint once. Only the first
 * set also gets the complaints from before the creation of the set.
 * A line "driver" has the field "error", with which nvmlInit fails, or "hangs=1", with which nvmlInit never returns.
 * A GPU with lost=1 has fallen off the bus and has no handle. With lost=2, the handle of the GPU gives only the
 * address. With lost=3, the handle does not give the address, either. With "fails=1", after the loss of the GPU,
 * no program can wait for a set with the GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15, MOST = 64, LONGEST = 1024 };
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } Event;
typedef struct { int seen, gpus; long gpu[64]; } Set;

typedef struct { int count; char lines[MOST][LONGEST]; } State;

static int sets;
static State *now;

/* Reads the file. Does not free the former state, because another thread may be reading that state. */
static void load(void) {
    const char *file = getenv("NVML_STATE");
    FILE *f = fopen(file ? file : "/run/nvml", "r");
    State *read = calloc(1, sizeof *read);
    for (; f && read->count < MOST && fgets(read->lines[read->count], LONGEST, f); read->count++)
        read->lines[read->count][strcspn(read->lines[read->count], "\n")] = 0;
    if (f) fclose(f);
    if (now && !memcmp(now, read, sizeof *read)) free(read);
    else now = read;
}

/* Returns the number of the nth line of a kind, or 0 without such a line. Handles are line numbers, starting at 1. */
static long nth(const char *kind, int n) {
    State *state = now;
    for (int i = 0; i < state->count; i++)
        if (!strncmp(state->lines[i], kind, strlen(kind)) && n-- == 0) return i + 1;
    return 0;
}

static const char *field(long line, const char *name) {
    static __thread char values[8][LONGEST];
    static __thread int turn;
    char *value = values[turn++ % 8], key[32];
    snprintf(key, sizeof key, " %s=", name);
    char *at = line ? strstr(now->lines[line - 1], key) : NULL;
    if (!at) return "";
    strcpy(value, at + strlen(key));
    value[strcspn(value, " ")] = 0;
    return value;
}

static int number(long line, const char *name) { return atoi(field(line, name)); }
static int lost(void *device) { return number((long)device, "lost") ? LOST : OK; }

static int text(void *device, const char *name, char *out, unsigned size) {
    snprintf(out, size, "%s", field((long)device, name));
    for (char *c = out; !strcmp(name, "name") && *c; c++)
        if (*c == '_') *c = ' ';
    return lost(device);
}

int nvmlInitWithFlags(unsigned flags) {
    for (load(); number(nth("driver", 0), "hangs"); load()) usleep(10000);
    return number(nth("driver", 0), "error");
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    return code == LOST ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "Another Error";
}
int nvmlDeviceGetCount_v2(unsigned *n) { for (*n = 0; nth("gpu", *n); ++*n); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device) {
    long line = nth("gpu", i);
    *device = (void *)line;
    return !line ? INVALID : number(line, "lost") == 1 ? LOST : OK;
}
int nvmlDeviceGetPciInfo_v3(void *device, Pci *pci) {
    text(device, "bus", pci->busId, 32);
    return number((long)device, "lost") == 3 ? LOST : OK;
}
int nvmlDeviceGetName(void *device, char *out, unsigned size) { return text(device, "name", out, size); }
int nvmlDeviceGetUUID(void *device, char *out, unsigned size) { return text(device, "uuid", out, size); }
int nvmlDeviceGetMinorNumber(void *device, unsigned *n) { *n = number((long)device, "minor"); return lost(device); }

/* Returns the bus address of the device at the other end of a lane. */
static const char *far(void *device, unsigned lane) {
    char *at = strtok((char *)field((long)device, "links"), ",");
    while (at && lane--) at = strtok(NULL, ",");
    return at;
}
int nvmlDeviceGetNvLinkState(void *device, unsigned lane, unsigned *active) {
    *active = far(device, lane) != NULL;
    return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned lane, Pci *pci) {
    const char *bus = far(device, lane);
    if (bus) snprintf(pci->busId, 32, "%s", bus);
    return bus ? OK : INVALID;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending) {
    *now = *pending = number((long)device, "mig");
    return *field((long)device, "mig") ? OK : UNSUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *n) { *n = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **mig) {
    long line;
    for (int i = 0; (line = nth("mig", i)); i++)
        if (nth("gpu", number(line, "gpu")) == (long)device && index-- == 0) return *mig = (void *)line, OK;
    return NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(void *mig, unsigned *n) { *n = number((long)mig, "gi"); return lost(mig); }
int nvmlDeviceGetComputeInstanceId(void *mig, unsigned *n) { *n = number((long)mig, "ci"); return OK; }

int nvmlDeviceGetRemappedRows(void *device, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) {
    *c = *u = 0, *pending = number((long)device, "pending"), *failed = number((long)device, "failed");
    return *field((long)device, "failed") ? OK : UNSUPPORTED;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, unsigned *pending) {
    *pending = number((long)device, "retired");
    return *field((long)device, "retired") ? OK : UNSUPPORTED;
}

int nvmlEventSetCreate(Set **set) {
    *set = calloc(1, sizeof **set);
    while (sets && nth("xid", (*set)->seen)) (*set)->seen++;
    return sets++, OK;
}
int nvmlEventSetFree(Set *set) { return free(set), OK; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, Set *set) {
    if (types != 8) return INVALID;
    if (lost(device)) return LOST;
    return set->gpu[set->gpus++] = (long)device, OK;
}
static int has(Set *set, long gpu) {
    for (int i = 0; i < set->gpus; i++)
        if (set->gpu[i] == gpu) return 1;
    return 0;
}
int nvmlEventSetWait_v2(Set *set, Event *event, unsigned timeout) {
    load();
    for (int i = 0; i < set->gpus; i++)
        if (lost((void *)set->gpu[i]) && number(set->gpu[i], "fails")) return LOST;
    for (long line; (line = nth("xid", set->seen)); ) {
        long gpu = nth("gpu", number(line, "gpu"));
        set->seen++;
        if (!has(set, gpu)) continue;
        event->device = (void *)gpu;
        event->type = 8, event->data = number(line, "code"), event->gi = event->ci = -1;
        return OK;
    }
    return usleep(timeout * 1000), TIMEOUT;
}
