"""Numbers of the system calls that the seccomp filter names, per machine."""

from __future__ import annotations

__all__ = ["AUDIT_ARCH", "SYSCALLS"]

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's word for each machine, as a filter sees it."""


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (entry.partition("=") for entry in text.split())}


SYSCALLS = {
    "x86_64": _table(
        """
        read=0 write=1 open=2 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12
        rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 ioctl=16 pread64=17 readv=19 writev=20 access=21 pipe=22
        select=23 sched_yield=24 mremap=25 mincore=27 madvise=28 dup=32 dup2=33 pause=34 nanosleep=35 getitimer=36
        alarm=37 setitimer=38 getpid=39 sendto=44 recvfrom=45 sendmsg=46 recvmsg=47 shutdown=48 getsockname=51
        getpeername=52 socketpair=53 getsockopt=55 clone=56 exit=60 kill=62 uname=63 fcntl=72 getdents=78 getcwd=79
        readlink=89 gettimeofday=96 getrlimit=97 getrusage=98 sysinfo=99 times=100 getuid=102 getgid=104 geteuid=107
        getegid=108 getppid=110 getpgrp=111 getgroups=115 getresuid=118 getresgid=120 rt_sigpending=127
        rt_sigtimedwait=128 rt_sigsuspend=130 sigaltstack=131 statfs=137 fstatfs=138 prctl=157 gettid=186 time=201
        futex=202 sched_getaffinity=204 epoll_create=213 getdents64=217 set_tid_address=218 restart_syscall=219
        clock_gettime=228 clock_getres=229 clock_nanosleep=230 exit_group=231 epoll_wait=232 epoll_ctl=233 tgkill=234
        openat=257 newfstatat=262 readlinkat=267 faccessat=269 pselect6=270 ppoll=271 set_robust_list=273
        epoll_pwait=281 eventfd2=290 epoll_create1=291 dup3=292 pipe2=293 preadv=295 prlimit64=302 getcpu=309
        seccomp=317 getrandom=318 membarrier=324 statx=332 rseq=334 io_uring_setup=425 clone3=435 close_range=436
        openat2=437 faccessat2=439 epoll_pwait2=441 futex_waitv=449
        """
    ),
    "aarch64": _table(
        """
        getcwd=17 eventfd2=19 epoll_create1=20 epoll_ctl=21 epoll_pwait=22 dup=23 dup3=24 fcntl=25 ioctl=29 statfs=43
        fstatfs=44 faccessat=48 openat=56 close=57 pipe2=59 getdents64=61 lseek=62 read=63 write=64 readv=65
        writev=66 pread64=67 preadv=69 pselect6=72 ppoll=73 readlinkat=78 newfstatat=79 fstat=80 exit=93
        exit_group=94 set_tid_address=96 futex=98 set_robust_list=99 nanosleep=101 getitimer=102 setitimer=103
        clock_gettime=113 clock_getres=114 clock_nanosleep=115 sched_getaffinity=123 sched_yield=124
        restart_syscall=128 kill=129 tgkill=131 sigaltstack=132 rt_sigsuspend=133 rt_sigaction=134
        rt_sigprocmask=135 rt_sigpending=136 rt_sigtimedwait=137 rt_sigreturn=139 getresuid=148 getresgid=150
        times=153 getgroups=158 uname=160 getrusage=165 prctl=167 getcpu=168 gettimeofday=169 getpid=172 getppid=173
        getuid=174 geteuid=175 getgid=176 getegid=177 gettid=178 sysinfo=179 socketpair=199 getsockname=204
        getpeername=205 sendto=206 recvfrom=207 getsockopt=209 shutdown=210 sendmsg=211 recvmsg=212 brk=214
        munmap=215 mremap=216 clone=220 mmap=222 mprotect=226 mincore=232 madvise=233 prlimit64=261 seccomp=277
        getrandom=278 membarrier=283 statx=291 rseq=293 io_uring_setup=425 clone3=435 close_range=436 openat2=437
        faccessat2=439 epoll_pwait2=441 futex_waitv=449
        """
    ),
}
