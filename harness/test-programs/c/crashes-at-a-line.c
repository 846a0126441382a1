// A process manager that crashes in fn_get on a get without a key.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>
#include <sys/wait.h>
static void __attribute__((noinline)) fn_get(char *key){ printf("%c", key[0]); fflush(stdout); }
int main(int c,char**v){ int n=atoi(v[2]); (void)n; int s[2]; socketpair(AF_UNIX,SOCK_STREAM,0,s);
 if(!fork()){ char b[9]; sprintf(b,"%d",s[1]); setenv("PMI_FD",b,1); setenv("PMI_RANK","0",1); setenv("PMI_SIZE","1",1); close(s[0]); execvp(v[3],v+3); _exit(1);} close(s[1]);
 FILE*f=fdopen(s[0],"r"); char l[5000]; while(fgets(l,5000,f)){
  if(!strncmp(l,"cmd=init",8)) dprintf(s[0],"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n");
  else if(!strncmp(l,"cmd=get_maxes",13)) dprintf(s[0],"cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n");
  else if(!strncmp(l,"cmd=get_my_kvsname",18)) dprintf(s[0],"cmd=my_kvsname rc=0 kvsname=k\n");
  else if(!strncmp(l,"cmd=get\n",8)) fn_get(NULL);
  else if(!strncmp(l,"cmd=finalize",12)) dprintf(s[0],"cmd=finalize_ack rc=0\n");
  else break; }
 fclose(f); int st; wait(&st); return 0; }
