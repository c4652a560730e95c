/* One rank of a program that speaks PMIx with slurmstepd, as MPI's libraries do by libpmix (Debian's
   Slurm brings that without its headers; what is declared here is the PMIx standard's): it tells all ranks
   a word, and prints its neighbour's. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { char nspace[256]; uint32_t rank; } process;
typedef struct { uint16_t type; union { char *string; char room[64]; } data; } value;

extern int PMIx_Init(process *self, void *info, size_t count);
extern int PMIx_Put(uint8_t scope, const char *key, value *put);
extern int PMIx_Commit(void);
extern int PMIx_Fence(const process *whom, size_t whom_count, const void *info, size_t count);
extern int PMIx_Get(const process *whose, const char *key, const void *info, size_t count, value **got);
extern int PMIx_Finalize(const void *info, size_t count);

enum { STRING = 3, GLOBAL = 3 };

static void done(const char *what, int status)
{
    if (status == 0)
        return;
    fprintf(stderr, "%s: %d\n", what, status);
    exit(1);
}

int main(void)
{
    process self, neighbour;
    char word[512];
    value own = {.type = STRING, .data.string = word}, *other;

    done("PMIx_Init", PMIx_Init(&self, NULL, 0));
    snprintf(word, sizeof word, "%s:%u", getenv("SLURMD_NODENAME"), self.rank);
    done("PMIx_Put", PMIx_Put(GLOBAL, "word", &own));
    done("PMIx_Commit", PMIx_Commit());
    done("PMIx_Fence", PMIx_Fence(NULL, 0, NULL, 0));
    neighbour = self;
    neighbour.rank = (self.rank + 1) % (uint32_t)atoi(getenv("SLURM_NTASKS"));
    done("PMIx_Get", PMIx_Get(&neighbour, "word", NULL, 0, &other));
    printf("%s %s\n", word, other->data.string);
    fflush(stdout);
    /* A rank that has left is not asked any more: nobody leaves before all have heard their neighbours. */
    done("PMIx_Fence", PMIx_Fence(NULL, 0, NULL, 0));
    done("PMIx_Finalize", PMIx_Finalize(NULL, 0));
    return 0;
}
