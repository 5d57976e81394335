/* A sweep without memory: its table and its list of runs that are done are whole, or it is known
 * that they are not. And lines that do not fit are not there in part. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "failing.h"
#include "file/folder.h"
#undef COUNT /* the command line has its own */
#include "io/append.h"
#include "io/memory.h"
#include "verbs/sweep/command.h"
#include "verbs/sweep/results.h"

static char         *rates[] = {"0.001", "0.002"};
static cli_sweep     sweep = {.n = 1, .axis = {{.name = "lr", .count = 2, .value = rates}}};
static cli_sweep_run runs[] = {{.name = "lr=0.001", .step = 4, .loss = 2, .eval_loss = 3},
                               {.name = "lr=0.002", .step = 4, .loss = 1, .eval_loss = 2.5}};
static const cli_sweep_results all = {&sweep, -1, 2, runs};

/* The list comes first: what is said to lack in a process stays so. */
static void notes_what_is_done(void **state)
{
    const cli_command command = {.said = "--lr=0.001"};
    const char       *path = in_folder("done.jsonl");
    int               status = CLI_FAILED;
    long              n = 0;
    char             *text;
    size_t            bytes;
    for (; status != CLI_OK; n++) {
        allocations_left = n;
        status = cli_sweep_done(in_folder(""), &runs[0], &command);
        allocations_left = -1;
        assert_int_equal(access(path, F_OK) == 0, status == CLI_OK);
    }
    assert_true(n > 1);
    assert_int_equal(dra_file_read(path, 1 << 10, &text, &bytes, NULL), DRA_OK);
    assert_string_equal(text, "{\"name\": \"lr=0.001\", \"command\": \"--lr=0.001\"}\n");
    free(text);
    assert_int_equal(unlink(path), 0);
}

static char *table_of(long allocations)
{
    char  *text;
    size_t bytes;
    FILE  *out = dra_stream_memory(&text, &bytes);
    assert_non_null(out);
    allocations_left = allocations;
    cli_sweep_table(&all, out);
    allocations_left = -1;
    assert_int_equal(fclose(out), 0);
    return text;
}

static void shows_all_rows(void **state)
{
    char *whole = table_of(-1), *part = table_of(0);
    assert_non_null(strstr(whole, "lr=0.001\n"));
    assert_non_null(strstr(whole, "lr=0.002\n"));
    assert_true(cli_memory_lacked() || strcmp(whole, part) == 0);
    free(whole);
    free(part);
}

static void cuts_what_does_not_fit(void **state)
{
    const char   *path = in_folder("lines");
    dra_error     err = {0};
    struct rlimit before;
    char         *text;
    size_t        bytes;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(cli_append(path, 0666, "first\n", 6, &err), DRA_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){10, before.rlim_max}), 0);
    const dra_status st = cli_append(path, 0666, "second\n", 7, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(st, DRA_ERR_FILE);
    assert_non_null(strstr(err.text, "cannot write"));
    assert_int_equal(cli_append(path, 0666, "third\n", 6, &err), DRA_OK);
    assert_int_equal(dra_file_read(path, 1 << 10, &text, &bytes, NULL), DRA_OK);
    assert_string_equal(text, "first\nthird\n");
    free(text);
    assert_int_equal(cli_append(in_folder("none/lines"), 0666, "x\n", 2, &err), DRA_ERR_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_what_is_done),
        cmocka_unit_test(shows_all_rows),
        cmocka_unit_test(cuts_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
