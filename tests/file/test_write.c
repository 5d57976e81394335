/* Whole files: written as a whole or not at all, whatever comes between; read up to a limit. */
#include "folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "file/writer.h"

static void write_well(const char *name, const void *data, size_t bytes)
{
    dra_error err = {0};
    if (dra_file_write(in_folder(name), data, bytes, &err) != DRA_OK) fail_msg("%s", err.text);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void writes_and_replaces(void **state)
{
    write_well("f", "first", 5);
    check_file("f", "first", 5);
    write_well("f", "other one", 9);
    check_file("f", "other one", 9);
    write_well("f", NULL, 0);
    check_file("f", "", 0);
    assert_int_equal(folder_files(false), 1);
}

static void writes_pieces_of_any_size(void **state)
{
    const size_t     sizes[] = {0, 1, 65535, 1, 65536, 65537, 3, 200000, 65536, 0, 5};
    static char      data[500000];
    dra_file_writer *w = NULL;
    size_t           at = 0;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * i >> 7);
    assert_int_equal(dra_file_writer_begin(in_folder("f"), &w, NULL), DRA_OK);
    for (size_t i = 0; i < COUNT(sizes); at += sizes[i++])
        assert_int_equal(dra_file_writer_write(w, data + at, sizes[i], NULL), DRA_OK);
    assert_int_equal(dra_file_writer_commit(w, NULL), DRA_OK);
    check_file("f", data, at);
    assert_int_equal(folder_files(false), 1);
}

static void aborts(void **state)
{
    dra_file_writer *w = NULL;
    write_well("f", "old", 3);
    assert_int_equal(dra_file_writer_begin(in_folder("f"), &w, NULL), DRA_OK);
    assert_int_equal(dra_file_writer_write(w, "new", 3, NULL), DRA_OK);
    assert_int_equal(folder_files(false), 2);
    dra_file_writer_abort(w);
    dra_file_writer_abort(NULL);
    check_file("f", "old", 3);
    assert_int_equal(folder_files(false), 1);
}

static void keeps_permissions_and_links(void **state)
{
    struct stat  s;
    const mode_t umask_before = umask(027);
    write_well("f", "a", 1);
    assert_int_equal(stat(in_folder("f"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0640);
    chmod(in_folder("f"), 0606);
    assert_int_equal(symlink("f", in_folder("link")), 0);
    write_well("link", "b", 1);
    umask(umask_before);
    check_file("f", "b", 1);
    assert_int_equal(stat(in_folder("f"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0606);
    assert_int_equal(lstat(in_folder("link"), &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(folder_files(false), 2);
}

static void two_writers_do_not_mix(void **state)
{
    dra_file_writer *a = NULL, *b = NULL;
    assert_int_equal(dra_file_writer_begin(in_folder("f"), &a, NULL), DRA_OK);
    assert_int_equal(dra_file_writer_begin(in_folder("f"), &b, NULL), DRA_OK);
    dra_file_writer_write(a, "aaa", 3, NULL);
    dra_file_writer_write(b, "bb", 2, NULL);
    assert_int_equal(dra_file_writer_commit(b, NULL), DRA_OK);
    check_file("f", "bb", 2);
    assert_int_equal(dra_file_writer_commit(a, NULL), DRA_OK);
    check_file("f", "aaa", 3);
    assert_int_equal(folder_files(false), 1);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refused(const char *name, const char *rest)
{
    dra_error err = {0};
    assert_int_equal(dra_file_write(in_folder(name), "x", 1, &err), DRA_ERR_FILE);
    check_error(&err, DRA_ERR_FILE, name, rest);
}

static void refuses_what_cannot_be_written(void **state)
{
    dra_error err = {0};
    put_file("f", "old", 3);
    assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    refused("sub", ": is a folder");
    refused("pipe", ": is not a regular file");
    refused("none/f", ": cannot open its folder: No such file or directory");
    refused("none/", ": has no file name");
    refused("f/g", ": cannot find it: Not a directory");
    assert_int_equal(dra_file_write("/dev/full", "x", 1, &err), DRA_ERR_FILE);
    assert_string_equal(err.text, "/dev/full: is not a regular file");
    assert_int_equal(dra_file_write("", "x", 1, &err), DRA_ERR_FILE);
    assert_string_equal(err.text, ": has no file name");
    assert_int_equal(dra_file_write(NULL, "x", 1, &err), DRA_ERR_VALUE);
    assert_int_equal(dra_file_write(in_folder("f"), NULL, 1, &err), DRA_ERR_VALUE);
    assert_int_equal(dra_file_writer_begin(in_folder("f"), NULL, NULL), DRA_ERR_VALUE);
    assert_int_equal(dra_file_writer_commit(NULL, NULL), DRA_ERR_VALUE);
    assert_int_equal(dra_file_writer_write(NULL, "x", 1, NULL), DRA_ERR_VALUE);
    check_file("f", "old", 3);
    assert_int_equal(folder_files(false), 3);
}

static void refuses_a_closed_folder(void **state)
{
    dra_error  err = {0};
    const bool root = geteuid() == 0; /* may write everywhere but where the kernel forbids it */
    if (!root) chmod(folder, 0500);
    const char *path = root ? "/proc/dra" : in_folder("f");
    assert_int_equal(dra_file_write(path, "x", 1, &err), DRA_ERR_FILE);
    chmod(folder, 0700);
    assert_non_null(strstr(err.text, ": cannot make a temporary file next to it: "));
}

static void long_names_fit(void **state) /* the temporary name is no longer than allowed */
{
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = 0;
    write_well(name, "x", 1);
    assert_int_equal(folder_files(false), 1);
    name[255] = 'n', name[256] = 0;
    dra_error err = {0};
    assert_int_equal(dra_file_write(in_folder(name), "x", 1, &err), DRA_ERR_FILE);
    assert_non_null(strstr(err.text, "nnn...nnn"));
    assert_non_null(strstr(err.text, ": cannot find it: File name too long"));
}

/* ---- a full disk ----------------------------------------------------------------------------- */

static void full_disk_leaves_the_old_file(void **state)
{
    const size_t sizes[] = {1, 70000}; /* seen by the commit, seen by the write */
    put_file("f", "old", 3);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        static const char data[70000];
        dra_file_writer  *w = NULL;
        dra_error         err = {0}, last = {0};
        const int         full = open("/dev/full", O_WRONLY);
        assert_true(full >= 0);
        assert_int_equal(dra_file_writer_begin(in_folder("f"), &w, NULL), DRA_OK);
        assert_true(dup2(full, w->fd) >= 0);
        close(full);
        const dra_status st = dra_file_writer_write(w, data, sizes[i], &err);
        assert_int_equal(st, i ? DRA_ERR_FILE : DRA_OK);
        assert_int_equal(dra_file_writer_write(w, data, 1, NULL), st); /* the first error stays */
        assert_int_equal(dra_file_writer_commit(w, &last), DRA_ERR_FILE);
        if (i) check_error(&err, DRA_ERR_FILE, "f", ": cannot write it: No space left on device");
        check_error(&last, DRA_ERR_FILE, "f", ": cannot write it: No space left on device");
        check_file("f", "old", 3);
        assert_int_equal(folder_files(false), 1);
    }
}

/* In a child: files may have 100000 bytes; the write comes back short first. */
static int write_too_much(void)
{
    static const char     data[300000];
    const struct rlimit   limit = {100000, 100000};
    const dra_tensor_item item = {"a", DRA_BOOL, DRA_SHAPE(300000), data};
    dra_error             err = {0};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    if (dra_tensors_write(in_folder("f"), &item, 1, NULL, 0, &err) != DRA_ERR_FILE) return 2;
    return strstr(err.text, "/f: cannot write it: File too large") ? 0 : 3;
}

static void short_writes_leave_the_old_file(void **state)
{
    int status = -1;
    put_file("f", "old", 3);
    const pid_t child = fork();
    if (child == 0) _exit(write_too_much());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_file("f", "old", 3);
    assert_int_equal(folder_files(false), 1);
}

/* ---- killed ---------------------------------------------------------------------------------- */

static void wait_ms(double ms) { nanosleep(&(struct timespec){0, (long)(1e6 * ms)}, NULL); }

static void write_slowly(int out)
{
    static const char data[100000];
    dra_file_writer  *w = NULL;
    if (dra_file_writer_begin(in_folder("f"), &w, NULL) != DRA_OK) _exit(1);
    for (int i = 0; i < 1000; i++) {
        dra_file_writer_write(w, data, sizeof data, NULL);
        if (write(out, "x", 1) != 1) _exit(1);
        wait_ms(1);
    }
    _exit(0);
}

static void killed_while_writing_leaves_the_old_file(void **state)
{
    int  ends[2], status = 0;
    char byte;
    put_file("f", "old", 3);
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) write_slowly(ends[1]);
    for (int i = 0; i < 5; i++) assert_int_equal(read(ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(ends[0]);
    close(ends[1]);
    check_file("f", "old", 3);
    assert_int_equal(folder_files(false), 2); /* with what the child could not remove */
    write_well("f", "new", 3);
    check_file("f", "new", 3);
}

enum { VERSION_SIZE = 30000 };

static void write_versions(int32_t version) /* until killed */
{
    static int32_t        data[VERSION_SIZE];
    const dra_tensor_item item = {"v", DRA_I32, DRA_SHAPE(VERSION_SIZE), data};
    for (;; version++) {
        for (int i = 0; i < VERSION_SIZE; i++) data[i] = version;
        if (dra_tensors_write(in_folder("f"), &item, 1, NULL, 0, NULL) != DRA_OK) _exit(1);
    }
}

static int32_t read_version(void)
{
    static int32_t data[VERSION_SIZE];
    dra_tensors   *t = NULL;
    dra_error      err = {0};
    if (dra_tensors_open(in_folder("f"), &t, &err) != DRA_OK ||
        dra_tensors_read(t, "v", DRA_I32, DRA_SHAPE(VERSION_SIZE), data, &err) != DRA_OK)
        fail_msg("%s", err.text);
    dra_tensors_close(t);
    for (int i = 0; i < VERSION_SIZE; i++) assert_int_equal(data[i], data[0]);
    return data[0];
}

static void killed_at_any_moment_leaves_a_whole_file(void **state)
{
    static int32_t        data[VERSION_SIZE];
    const dra_tensor_item item = {"v", DRA_I32, DRA_SHAPE(VERSION_SIZE), data};
    uint64_t              seed = 5;
    int32_t               version = 0;
    assert_int_equal(dra_tensors_write(in_folder("f"), &item, 1, NULL, 0, NULL), DRA_OK);
    for (int round = 0; round < 30; round++) {
        int         status = 0;
        const pid_t child = fork();
        if (child == 0) write_versions(version + 1);
        wait_ms(20 * check_random(&seed));
        (void)read_version(); /* also while it is being replaced */
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        const int32_t now = read_version();
        assert_true(now >= version);
        version = now;
    }
    assert_true(version > 0);
}

/* ---- reading whole files --------------------------------------------------------------------- */

static void reads_up_to_a_limit(void **state)
{
    static char data[100000];
    dra_error   err = {0};
    size_t      n = 99;
    char       *text = folder;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 31 >> 3);
    put_file("f", data, sizeof data);
    const size_t good[] = {sizeof data, sizeof data + 1, 1 << 20, SIZE_MAX};
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(dra_file_read(in_folder("f"), good[i], &text, &n, NULL), DRA_OK);
        assert_int_equal(n, sizeof data);
        assert_memory_equal(text, data, n);
        assert_int_equal(text[n], 0);
        free(text);
    }
    assert_int_equal(dra_file_read(in_folder("f"), sizeof data - 1, &text, &n, &err), DRA_ERR_FILE);
    check_error(&err, DRA_ERR_FILE, "f", ": is longer than 99999 bytes");
    assert_null(text);
    assert_int_equal(n, 0);
    assert_int_equal(dra_file_read(in_folder("f"), 0, &text, &n, &err), DRA_ERR_FILE);
    put_file("e", "", 0);
    assert_int_equal(dra_file_read(in_folder("e"), 0, &text, &n, NULL), DRA_OK);
    assert_int_equal(n, 0);
    assert_string_equal(text, "");
    free(text);
}

static void reads_a_pipe(void **state)
{
    static char data[50000];
    size_t      n = 0;
    char       *text = NULL;
    int         status;
    memset(data, 'p', sizeof data);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    const pid_t child = fork();
    if (child == 0) {
        const int fd = open(in_folder("pipe"), O_WRONLY);
        _exit(write(fd, data, sizeof data) != sizeof data);
    }
    assert_int_equal(dra_file_read(in_folder("pipe"), 1 << 20, &text, &n, NULL), DRA_OK);
    waitpid(child, &status, 0);
    assert_int_equal(n, sizeof data);
    assert_memory_equal(text, data, n);
    free(text);
}

static void refuses_to_read(void **state)
{
    dra_error err = {0};
    size_t    n;
    char     *text;
    assert_int_equal(mkdir(in_folder("sub"), 0700), 0);
    dra_file_read(in_folder("none"), 9, &text, &n, &err);
    check_error(&err, DRA_ERR_FILE, "none", ": cannot open it: No such file or directory");
    dra_file_read(in_folder("sub"), 9, &text, &n, &err);
    check_error(&err, DRA_ERR_FILE, "sub", ": is a folder");
    assert_int_equal(dra_file_read(NULL, 9, &text, &n, &err), DRA_ERR_VALUE);
    assert_int_equal(dra_file_read(in_folder("sub"), 9, NULL, &n, &err), DRA_ERR_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(writes_and_replaces, clean),
        cmocka_unit_test_setup(writes_pieces_of_any_size, clean),
        cmocka_unit_test_setup(aborts, clean),
        cmocka_unit_test_setup(keeps_permissions_and_links, clean),
        cmocka_unit_test_setup(two_writers_do_not_mix, clean),
        cmocka_unit_test_setup(refuses_what_cannot_be_written, clean),
        cmocka_unit_test_setup(refuses_a_closed_folder, clean),
        cmocka_unit_test_setup(long_names_fit, clean),
        cmocka_unit_test_setup(full_disk_leaves_the_old_file, clean),
        cmocka_unit_test_setup(short_writes_leave_the_old_file, clean),
        cmocka_unit_test_setup(killed_while_writing_leaves_the_old_file, clean),
        cmocka_unit_test_setup(killed_at_any_moment_leaves_a_whole_file, clean),
        cmocka_unit_test_setup(reads_up_to_a_limit, clean),
        cmocka_unit_test_setup(reads_a_pipe, clean),
        cmocka_unit_test_setup(refuses_to_read, clean),
    };
    if (folder_make(NULL) != 0) return 1;
    const int failed = check_main("write", NULL, 0, tests, COUNT(tests));
    return folder_remove(NULL) == 0 ? failed : 1;
}
