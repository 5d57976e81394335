/* Mapping: open, look at what and how large it is, map. */
#include "file/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/fail.h"
#include "file/system.h"

static dra_status map_open_file(const char *path, int fd, dra_file_map *out, dra_error *err)
{
    struct stat s;
    if (dra_sys_fstat(fd, &s) != 0) return dra_fail_system(err, path, "look at it", errno);
    if (S_ISDIR(s.st_mode)) return dra_fail_at(err, DRA_ERR_FILE, path, "is a folder");
    if (!S_ISREG(s.st_mode)) return dra_fail_at(err, DRA_ERR_FILE, path, "is not a regular file");
    if ((uintmax_t)s.st_size > SIZE_MAX / 2)
        return dra_fail_at(err, DRA_ERR_FILE, path, "has %lld bytes, too many to map",
                           (long long)s.st_size);
    if (s.st_size == 0) return DRA_OK;
    void *data = dra_sys_map(fd, (size_t)s.st_size);
    if (data == MAP_FAILED) return dra_fail_system(err, path, "map it", errno);
    *out = (dra_file_map){
        data,
        (size_t)s.st_size,
        {(int64_t)s.st_dev, (int64_t)s.st_ino, s.st_mtim.tv_sec, s.st_mtim.tv_nsec}};
    return DRA_OK;
}

dra_status dra_file_map_open(const char *path, dra_file_map *out, dra_error *err)
{
    *out = (dra_file_map){0};
    const int fd = dra_sys_open(path, O_RDONLY | O_NONBLOCK, 0); /* a pipe must not make us wait */
    if (fd < 0) return dra_fail_system(err, path, "open it", errno);
    const dra_status status = map_open_file(path, fd, out, err);
    close(fd); /* the mapping stays */
    return status;
}

void dra_file_map_rest(const dra_file_map *map)
{
    if (map->data) madvise((void *)(uintptr_t)map->data, map->bytes, MADV_DONTNEED);
}

void dra_file_map_close(dra_file_map *map)
{
    if (map->data) munmap((void *)(uintptr_t)map->data, map->bytes);
    *map = (dra_file_map){0};
}
