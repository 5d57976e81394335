/* Streams: to memory, where each allocation fails once; from files, where signals interrupt. */
#include "folder.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "dra/file.h"
#include "failing.h"

/* ---- to memory ------------------------------------------------------------------------------- */

enum { LINES = 2000 };

static void write_lines(FILE *out)
{
    for (int i = 0; i < LINES; i++) fprintf(out, "line %d\n", i);
}

static bool are_lines(const char *text, size_t bytes)
{
    char line[32];
    for (int i = 0; i < LINES; i++) {
        const size_t n = (size_t)snprintf(line, sizeof line, "line %d\n", i);
        if (bytes < n || memcmp(text, line, n) != 0) return false;
        text += n;
        bytes -= n;
    }
    return bytes == 0 && *text == '\0';
}

static void without_memory(void **state)
{
    long n = 0;
    for (bool whole = false; !whole; n++) {
        char  *text = NULL;
        size_t bytes = 0;
        allocations_left = n;
        FILE *out = dra_stream_memory(&text, &bytes);
        if (out) write_lines(out);
        const bool failed = !out || ferror(out);
        whole = out && fclose(out) == 0;
        allocations_left = -1;
        if (whole) assert_false(failed);
        if (whole) assert_true(are_lines(text, bytes));
        free(text);
    }
    assert_true(n > 4);
}

static void starting_over(void **state)
{
    char  *text;
    size_t bytes;
    FILE  *out = dra_stream_memory(&text, &bytes);
    assert_non_null(out);
    assert_string_equal(text, "");
    write_lines(out);
    rewind(out);
    fputs("short", out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "short");
    assert_int_equal(bytes, 5);
    free(text);
}

/* ---- from files ------------------------------------------------------------------------------ */

static volatile sig_atomic_t signals;

static void count(int number)
{
    (void)number;
    signals = signals + 1;
}

static void interrupt_every(long microseconds)
{
    const struct itimerval every = {{0, microseconds}, {0, microseconds}};
    struct sigaction       action = {.sa_handler = count}; /* no SA_RESTART */
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

/* Lines that come one after the other, slower than the signals. */
static pid_t slow_writer(int to)
{
    const pid_t child = fork();
    if (child != 0) return child;
    for (int i = 0; i < 5; i++) {
        usleep(50000);
        if (write(to, "a line\n", 7) != 7) _exit(1);
    }
    _exit(0);
}

static void interrupted(void **state)
{
    int    ends[2], status = 1, lines = 0;
    char  *line = NULL;
    size_t room = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = slow_writer(ends[1]);
    assert_true(child > 0);
    close(ends[1]);
    FILE *in = dra_stream_from(ends[0]);
    assert_non_null(in);
    interrupt_every(5000);
    while (getline(&line, &room, in) >= 0) {
        assert_string_equal(line, "a line\n");
        lines++;
    }
    const bool failed = ferror(in);
    interrupt_every(0);
    assert_false(failed);
    assert_int_equal(lines, 5);
    assert_true(signals > 5);
    assert_int_equal(fclose(in), 0);
    assert_int_equal(close(ends[0]), -1); /* it is closed */
    free(line);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void opening(void **state)
{
    char text[16] = "";
    assert_null(dra_stream_open(in_folder("none")));
    assert_int_equal(errno, ENOENT);
    assert_int_equal(dra_file_write(in_folder("f"), "a\0b", 3, NULL), DRA_OK);
    allocations_left = 0;
    assert_null(dra_stream_open(in_folder("f")));
    allocations_left = -1;
    assert_int_equal(errno, ENOMEM);
    FILE *in = dra_stream_open(in_folder("f"));
    assert_non_null(in);
    assert_int_equal(fread(text, 1, sizeof text, in), 3);
    assert_memory_equal(text, "a\0b", 4);
    assert_int_equal(fclose(in), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory),
        cmocka_unit_test(starting_over),
        cmocka_unit_test(interrupted),
        cmocka_unit_test(opening),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
