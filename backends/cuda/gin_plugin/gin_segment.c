/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inboxes; see gin_segment.h. A nonce at the end of the address is compared with the file's, because
 * numbers of processes and descriptors are used again.
 */
#include "gin_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31304e4947545349)
#define PAGE_BYTES 4096u

/* Of the running system. */
static uint64_t host_number(void)
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1u) : 0;
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    if (fd >= 0) {
        (void)close(fd);
    }
    for (ssize_t i = 0; i < got; ++i) { /* FNV-1a */
        number = (number ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    }
    return number;
}

static uint64_t new_nonce(void)
{
    uint64_t nonce = 0;
    if (getrandom(&nonce, sizeof(nonce), GRND_NONBLOCK) != (ssize_t)sizeof(nonce)) {
        struct timespec now;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        nonce = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    }
    return nonce;
}

uint64_t gin_segment_stride(uint64_t ring_bytes)
{
    return GIN_RING_CONTROL_BYTES + ring_bytes;
}

/* Held by the owner's descriptor, and gone with it. */
static bool own(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* The file's first page holds the nonce; rings follow. */
int gin_segment_create(uint32_t ring_bytes, gin_address *address)
{
    int fd = memfd_create("isthmus-gin", MFD_CLOEXEC);
    uint64_t nonce = new_nonce();
    if (fd < 0) {
        return -1;
    }
    if (ftruncate(fd, PAGE_BYTES) != 0 || pwrite(fd, &nonce, sizeof(nonce), 0) != sizeof(nonce) ||
        !own(fd)) {
        (void)close(fd);
        return -1;
    }
    *address = (gin_address){.magic = MAGIC,
                             .host = host_number(),
                             .nonce = nonce,
                             .process = (int64_t)getpid(),
                             .fd = fd,
                             .ring_bytes = ring_bytes};
    return fd;
}

int gin_segment_open(const gin_address *address)
{
    char path[64];
    uint64_t nonce = 0;
    if (address->magic != MAGIC || address->host != host_number()) {
        errno = EXDEV;
        return -1;
    }
    (void)snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)address->process,
                   (int)address->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 &&
        (pread(fd, &nonce, sizeof(nonce), 0) != sizeof(nonce) || nonce != address->nonce)) {
        (void)close(fd);
        errno = ESTALE;
        return -1;
    }
    return fd;
}

/* All that map agree about `total`, so whoever comes first makes the file that long. */
void *gin_segment_map(int fd, uint64_t total, uint64_t offset, uint64_t bytes)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || ((uint64_t)status.st_size < PAGE_BYTES + total &&
                                    ftruncate(fd, (off_t)(PAGE_BYTES + total)) != 0)) {
        return NULL;
    }
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(PAGE_BYTES + offset));
    return memory != MAP_FAILED ? memory : NULL;
}

void gin_segment_unmap(void *memory, uint64_t bytes)
{
    (void)munmap(memory, bytes);
}

bool gin_segment_owned(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}
