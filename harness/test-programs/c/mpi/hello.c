/* The smallest MPI program that needs its peers. The sum is right only if the process manager gives every
 * process the right rank and size, and if all processes find each other through the keyval space. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);

    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    /* The values begin at one, so that rank 0 contributes as well. */
    int mine = rank + 1, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    int expected = size * (size + 1) / 2;
    if (sum != expected) {
        fprintf(stderr, "hello: rank %d of %d: sum %d, expected %d\n", rank, size, sum, expected);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }

    /* One write per line: ranks share the pipe, and parts of lines must not interleave. */
    printf("hello: rank %d of %d, sum %d\n", rank, size, sum);
    fflush(stdout);

    MPI_Finalize();
    return 0;
}
