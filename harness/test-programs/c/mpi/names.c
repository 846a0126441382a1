/* Publishes a port under a service name, looks it up from every rank, and withdraws it. This tests the three
 * commands of PMI's name service (publish_name, lookup_name, unpublish_name) and their failing cases. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static const char *service = "pmi-conform-names";

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "names: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    int rank, opened = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);

    /* A lookup of a name that was not published must fail. The error must be returned, so that this program can check it. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Lookup_name(service, MPI_INFO_NULL, found) != MPI_SUCCESS, "found before it was published");
    MPI_Barrier(MPI_COMM_WORLD);

    if (rank == 0) {
        /* Some network modules have no ports, or have addresses too long for one (ch4:ucx). The name service
                 * only passes the string on, so an invented port is sufficient. */
        opened = MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS;
        if (!opened)
            strcpy(port, "tag=0$description=nowhere$");
        check(MPI_Publish_name(service, MPI_INFO_NULL, port) == MPI_SUCCESS, "cannot publish");
    }
    /* After publishing, rank 0 sends the port to the other ranks without the name service. */
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);

    check(MPI_Lookup_name(service, MPI_INFO_NULL, found) == MPI_SUCCESS, "published but not found");
    /* Port names contain = and $, and must be returned unchanged. (Spaces are not tested, because a space ends a PMI-1 value.) */
    check(strcmp(port, found) == 0, "found, but with a different port");
    printf("names: rank %d found the port\n", rank);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);

    if (rank == 0) {
        check(MPI_Unpublish_name(service, MPI_INFO_NULL, port) == MPI_SUCCESS, "cannot unpublish");
        check(!opened || MPI_Close_port(port) == MPI_SUCCESS, "cannot close the port");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check(MPI_Lookup_name(service, MPI_INFO_NULL, found) != MPI_SUCCESS, "found after it was unpublished");

    MPI_Finalize();
    return 0;
}
