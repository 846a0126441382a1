/* A library that crashes in PMI_Init. */

int PMI_Initialized(int *initialized)
{
    *initialized = 0;
    return 0;
}

int PMI_Init(int *spawned)
{
    *spawned = 0;
    return *(volatile int *)0;
}
