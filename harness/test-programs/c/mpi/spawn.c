/* Starts two copies of itself with MPI_Comm_spawn and talks to them. In PMI, this requires the spawn command
 * with an argument, a second process group with its own keyval space, PMI_SPAWNED=1 for the
 * children, and the preput key that lets them find their parent.
 *
 * Not every library supports this: Debian 12's MPICH (4.0.2, ch4:ucx) refuses without asking its process manager. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define CHILDREN 2
#define TAG 7

/* The argument contains a space, and must still reach the child as a single argument. */
static char argument[] = "said by the parent";

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "spawn: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Merges parents and children into one communicator. A collective operation on it ends only if the two
 * process groups have exchanged their addresses correctly. */
static void meet(MPI_Comm inter, int is_child)
{
    MPI_Comm all;
    int rank, size, sum = 0, one = 1;
    MPI_Intercomm_merge(inter, is_child, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, all);
    check(sum == size, "a process is missing in the merged communicator");
    printf("spawn: %s is %d of %d\n", is_child ? "child" : "parent", rank, size);
    fflush(stdout);
    MPI_Comm_free(&all);
}

static void parent(char *self)
{
    char *args[] = {argument, NULL};
    int codes[CHILDREN], rank, children = 0;
    MPI_Comm inter;
    MPI_Comm_spawn(self, args, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
    for (int i = 0; i < CHILDREN; i++)
        check(codes[i] == MPI_SUCCESS, "a child has an error code");
    MPI_Comm_remote_size(inter, &children);
    check(children == CHILDREN, "wrong number of children");

    /* Before the merge, the intercommunicator is used: each child answers with the square of its number. */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; rank == 0 && i < CHILDREN; i++) {
        int number = 3 + i, square = 0;
        MPI_Send(&number, 1, MPI_INT, i, TAG, inter);
        MPI_Recv(&square, 1, MPI_INT, i, TAG, inter, MPI_STATUS_IGNORE);
        check(square == number * number, "wrong answer from a child");
    }
    meet(inter, 0);
    MPI_Comm_disconnect(&inter);
}

static void child(MPI_Comm inter, int argc, char **argv)
{
    int size, number = 0;
    check(argc == 2 && strcmp(argv[1], argument) == 0, "the child received a different argument");
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check(size == CHILDREN, "the children do not have a separate MPI_COMM_WORLD");

    MPI_Recv(&number, 1, MPI_INT, 0, TAG, inter, MPI_STATUS_IGNORE);
    number *= number;
    MPI_Send(&number, 1, MPI_INT, 0, TAG, inter);
    meet(inter, 1);
    MPI_Comm_disconnect(&inter);
}

int main(int argc, char **argv)
{
    MPI_Comm inter;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&inter);
    if (inter == MPI_COMM_NULL)
        parent(argv[0]);
    else
        child(inter, argc, argv);
    MPI_Finalize();
    return 0;
}
