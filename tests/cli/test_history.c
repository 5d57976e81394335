/* Lines that were typed, in a file: where it is, what is added and read, when it is cut. */
#include "verbs/chat/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[40], path[64];

typedef struct seen {
    int  n;
    char first[32], last[32];
} seen;

static void see(void *user, const char *line)
{
    seen *s = user;
    if (s->n++ == 0) snprintf(s->first, sizeof s->first, "%s", line);
    snprintf(s->last, sizeof s->last, "%s", line);
}

static void expect_lines(int n, const char *first, const char *last)
{
    seen      s = {0};
    dra_error err = {0};
    if (cli_history_read(path, see, &s, &err) != DRA_OK) fail_msg("%s", err.text);
    assert_int_equal(s.n, n);
    assert_string_equal(s.first, first);
    assert_string_equal(s.last, last);
}

static void a_file_below_the_state_folder(void **unused)
{
    char text[64];
    (void)unused;
    setenv("XDG_STATE_HOME", "/there", 1);
    assert_true(cli_history_path(text, sizeof text));
    assert_string_equal(text, "/there/dra/history");
    setenv("XDG_STATE_HOME", "not/absolute", 1);
    setenv("HOME", "/me", 1);
    assert_true(cli_history_path(text, sizeof text));
    assert_string_equal(text, "/me/.local/state/dra/history");
    assert_false(cli_history_path(text, 8));
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    assert_false(cli_history_path(text, sizeof text));
}

static void lines_are_added_for_the_owner(void **unused)
{
    struct stat s;
    dra_error   err = {0};
    (void)unused;
    expect_lines(0, "", "");
    setenv("XDG_STATE_HOME", folder, 1); /* its folder is made */
    assert_int_equal(cli_history_add(path, "one", &err), DRA_OK);
    assert_int_equal(cli_history_add(path, "two \\ three", &err), DRA_OK);
    expect_lines(2, "one", "two \\ three");
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
}

/* Nothing is kept, made or said where there is no home. */
static void no_home_is_made(void **unused)
{
    char      home[64], own[128];
    dra_error err = {0};
    (void)unused;
    snprintf(home, sizeof home, "%s/nonexistent", folder);
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", home, 1);
    assert_true(cli_history_path(own, sizeof own));
    assert_int_equal(cli_history_add(own, "one", &err), DRA_OK);
    assert_int_not_equal(access(home, F_OK), 0);
    setenv("XDG_STATE_HOME", folder, 1);
}

static void long_files_are_cut(void **unused)
{
    FILE *f = fopen(path, "w");
    (void)unused;
    assert_non_null(f);
    for (int i = 1; i <= 2001; i++) fprintf(f, "line %d\n", i);
    fputs("half a line", f);
    fclose(f);
    expect_lines(1000, "line 1002", "line 2001");
    expect_lines(1000, "line 1002", "line 2001"); /* from the file that is left */
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    assert_true(s.st_size < 12000);
}

static void refusals_are_one_line(void **unused)
{
    char      below[80];
    dra_error err = {0};
    (void)unused;
    snprintf(below, sizeof below, "%s/more", path); /* below a file */
    assert_int_equal(cli_history_add(below, "one", &err), DRA_ERR_FILE);
    assert_non_null(strstr(err.text, "cannot"));
    snprintf(below, sizeof below, "%s/mistyped/history", folder); /* no other folder is */
    assert_int_equal(cli_history_add(below, "one", &err), DRA_ERR_FILE);
    assert_int_not_equal(cli_history_read(folder, see, &(seen){0}, &err), DRA_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_below_the_state_folder),
        cmocka_unit_test(lines_are_added_for_the_owner),
        cmocka_unit_test(no_home_is_made),
        cmocka_unit_test(long_files_are_cut),
        cmocka_unit_test(refusals_are_one_line),
    };
    snprintf(folder, sizeof folder, "/tmp/dra-history-%ld", (long)getpid());
    if (mkdir(folder, 0700) != 0) return 1;
    snprintf(path, sizeof path, "%s/dra/history", folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    snprintf(path, sizeof path, "%s/dra", folder);
    rmdir(path);
    rmdir(folder);
    return failed;
}
