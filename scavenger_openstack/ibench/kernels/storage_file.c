/* SPDX-License-Identifier: Apache-2.0 */

/* What SoI3 and SoI4 read and write: a file without a name in a directory,
 * which is gone with this process, or a block device, which is only read. */
#define _GNU_SOURCE
#include "soi.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TMPFS 0x01021994
#define RAMFS 0x858458f6u

static int open_here(const char *path, int flags)
{
    char name[PATH_MAX];
    int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR
                    && errno != ENOENT))
        return fd;
    /* a file system without O_TMPFILE */
    snprintf(name, sizeof name, "%s/.scavenger-soi-XXXXXX", path);
    fd = mkostemp(name, O_CLOEXEC | flags);
    if (fd >= 0)
        unlink(name);
    return fd;
}

static int open_direct(const char *path, bool device, bool direct)
{
    int flags = direct ? O_DIRECT : 0;
    return device ? open(path, O_RDONLY | O_CLOEXEC | flags)
        : open_here(path, flags);
}

struct storage open_storage(const char *path)
{
    struct storage storage = {.direct = true};
    struct stat info;
    struct statfs system;
    if (!path)
        fail(2, "--path is needed: a directory, or a block device to read");
    if (stat(path, &info) != 0 || statfs(path, &system) != 0)
        fail(2, "%s: %s: name a directory or a block device with --path",
             path, strerror(errno));
    storage.device = S_ISBLK(info.st_mode);
    if (!storage.device && !S_ISDIR(info.st_mode))
        fail(2, "%s is neither a directory nor a block device", path);
    if (!storage.device && ((unsigned long)system.f_type == TMPFS
                            || (unsigned long)system.f_type == RAMFS))
        fail(2, "%s is in memory (tmpfs): name a directory on a disk with "
             "--path", path);
    storage.fd = open_direct(path, storage.device, true);
    if (storage.fd < 0 && errno == EINVAL) {
        storage.direct = false;
        storage.fd = open_direct(path, storage.device, false);
    }
    if (storage.fd < 0)
        fail(2, "%s: %s: name a directory that may be written, or a device "
             "that may be read, with --path", path, strerror(errno));
    if (storage.device) {
        off_t end = lseek(storage.fd, 0, SEEK_END);
        storage.size = end > 0 ? (uint64_t)end : 0;
        if (!storage.size)
            fail(2, "%s has no size: no such device or no medium", path);
    }
    return storage;
}

void check_space(const struct storage *storage, const char *path,
                 double bytes)
{
    struct statvfs system;
    if (storage->device || fstatvfs(storage->fd, &system) != 0)
        return;
    double free = (double)system.f_bavail * (double)system.f_frsize;
    if (bytes > free)
        fail(2, "no space in %s: %.1f MiB are needed, %.1f MiB are free: "
             "lower --size or the intensity", path, bytes / MIB, free / MIB);
}

/* Random, so that no file system makes it smaller. */
void *piece_buffer(size_t bytes, uint64_t seed)
{
    void *buffer;
    if (posix_memalign(&buffer, 4096, bytes) != 0)
        fail(2, "no memory for a buffer");
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)buffer)[i] = next_random(&seed);
    return buffer;
}

void read_piece(const struct storage *storage, void *buffer, size_t bytes,
                uint64_t offset)
{
    if (!storage->direct)    /* the disk's, not the page cache's */
        posix_fadvise(storage->fd, (off_t)offset, (off_t)bytes,
                      POSIX_FADV_DONTNEED);
    ssize_t got = pread(storage->fd, buffer, bytes, (off_t)offset);
    if (got != (ssize_t)bytes)
        fail(2, "reading at byte %llu: %s", (unsigned long long)offset,
             got < 0 ? strerror(errno) : "no data");
}

void write_piece(const struct storage *storage, const void *buffer,
                 size_t bytes, uint64_t offset)
{
    ssize_t put = pwrite(storage->fd, buffer, bytes, (off_t)offset);
    if (put != (ssize_t)bytes)
        fail(2, "writing at byte %llu: %s: lower --size or the intensity",
             (unsigned long long)offset,
             put < 0 ? strerror(errno) : "no space");
    if (!storage->direct)
        fdatasync(storage->fd);
}
