/* The curve of a run that is resumed: what its log says is in it, at the steps it belongs to. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "verbs/train/progress.h"

/* The curve of a log up to a step; `lines`: how many, one for `every` steps from the first on. */
static cli_train_progress past_of(int64_t first, int64_t every, int lines, int64_t until)
{
    char               path[64];
    cli_train_progress w = {.log_every = every};
    snprintf(path, sizeof path, "/tmp/dra-past-%ld.jsonl", (long)getpid());
    FILE *out = fopen(path, "wx");
    assert_non_null(out);
    for (int i = 0; i < lines; i++)
        fprintf(out, "{\"step\": %lld, \"loss\": %d}\n{\"step\": %lld, \"eval_loss\": 9}\n",
                (long long)(first + i * every), i + 1, (long long)(first + i * every));
    assert_int_equal(fclose(out), 0);
    cli_progress_past(&w, path, until);
    unlink(path);
    return w;
}

static void each_line_counts_its_steps(void **state)
{
    const cli_train_progress w = past_of(10, 10, 5, 40);
    assert_int_equal(w.past, 40);
    assert_int_equal(w.curve.n, 40);
    assert_true(w.curve.y[0] == 1 && w.curve.y[9] == 1 && w.curve.y[10] == 2 && w.curve.y[39] == 4);
}

/* Nothing is made up for steps that another log has. */
static void a_log_may_begin_later(void **state)
{
    const cli_train_progress w = past_of(1001, 1, 20, 1010);
    assert_int_equal(w.past, 10);
    assert_int_equal(w.curve.n, 10);
}

/* The curve goes on where the run does, if that is between two lines. */
static void a_run_may_stop_between_lines(void **state)
{
    cli_train_progress w = past_of(10, 10, 1, 16);
    assert_int_equal(w.past, 16);
    assert_int_equal(w.curve.n, 16);
    assert_true(w.curve.y[15] == 1);
    w = past_of(10, 10, 3, 33);
    assert_int_equal(w.past, 33);
    assert_true(w.curve.y[32] == 3);
    w = past_of(10, 10, 3, 100); /* the rest is in another log */
    assert_int_equal(w.past, 30);
    w = past_of(10, 10, 3, 5); /* all lines are of later steps */
    assert_int_equal(w.past, 0);
}

static void there_may_be_no_log(void **state)
{
    cli_train_progress w = {0};
    cli_progress_past(&w, "/nowhere/log.jsonl", 10);
    assert_int_equal(w.past, 0);
    assert_int_equal(w.curve.n, 0);
    w = past_of(1, 1, 0, 10);
    assert_int_equal(w.past, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_line_counts_its_steps),
        cmocka_unit_test(a_log_may_begin_later),
        cmocka_unit_test(a_run_may_stop_between_lines),
        cmocka_unit_test(there_may_be_no_log),
    };
    return check_main("train_past", NULL, 0, tests, COUNT(tests));
}
