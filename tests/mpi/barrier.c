/* The shortest program of MPI: all ranks meet once, and the first one says how many there are. What is declared here
   is the MPI standard's, and how Open MPI's library has it: no headers are needed to build it. */
#include <stdio.h>

extern char ompi_mpi_comm_world[];
extern int MPI_Init(int *count, char ***arguments);
extern int MPI_Comm_rank(void *communicator, int *rank);
extern int MPI_Comm_size(void *communicator, int *size);
extern int MPI_Barrier(void *communicator);
extern int MPI_Finalize(void);

int main(int count, char **arguments)
{
    int rank, size;

    MPI_Init(&count, &arguments);
    MPI_Comm_rank(ompi_mpi_comm_world, &rank);
    MPI_Comm_size(ompi_mpi_comm_world, &size);
    MPI_Barrier(ompi_mpi_comm_world);
    if (rank == 0)
        printf("%d ranks\n", size);
    return MPI_Finalize();
}
