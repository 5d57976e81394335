/* Status lines at a terminal of any width, and elsewhere; the curve of a run. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "check.h"
#include "options/status.h"
#include "options/term.h"
#include "verbs/train/progress.h"

typedef struct screen { /* a pseudo terminal: what was written to it */
    int   master;
    FILE *out;
    char  text[1 << 14];
} screen;

static void resize(screen *s, unsigned short columns)
{
    const struct winsize size = {.ws_col = columns, .ws_row = 30};
    assert_int_equal(ioctl(s->master, TIOCSWINSZ, &size), 0);
}

static bool screen_open(screen *s, unsigned short columns)
{
    struct termios how;
    *s = (screen){.master = posix_openpt(O_RDWR | O_NOCTTY)};
    if (s->master < 0 || grantpt(s->master) != 0 || unlockpt(s->master) != 0) return false;
    const int slave = open(ptsname(s->master), O_RDWR | O_NOCTTY);
    s->out = slave < 0 ? NULL : fdopen(slave, "w");
    if (!s->out || tcgetattr(slave, &how) != 0) return false;
    how.c_oflag &= (tcflag_t)~OPOST;
    tcsetattr(slave, TCSANOW, &how);
    fcntl(s->master, F_SETFL, O_NONBLOCK);
    resize(s, columns);
    return true;
}

/* This was written since the last call. A terminal may hand it over in parts, some time later. */
static void expect(screen *s, const char *text)
{
    const size_t most = sizeof s->text - 1, n = strlen(text);
    size_t       have = 0;
    fflush(s->out);
    do {
        struct pollfd ready = {.fd = s->master, .events = POLLIN};
        if (n > 0 && poll(&ready, 1, 5000) != 1) break;
        const ssize_t more = read(s->master, s->text + have, most - have);
        if (more > 0) have += (size_t)more;
    } while (have < n);
    s->text[have] = '\0';
    assert_string_equal(s->text, text);
}

static void screen_close(screen *s)
{
    fclose(s->out);
    close(s->master);
}

static void fill(cli_status *s)
{
    cli_status_field(s, 0, "step %d/%d", 41, 100000);
    cli_status_field(s, 0, "loss %.4f", 2.34);
    cli_status_field(s, 4, "lr %.2e", 3e-4);
    cli_status_field(s, 5, "norm %.2f", 1.37);
    cli_status_field(s, 3, "258 k tokens/s");
    cli_status_field(s, 1, "1:23:45 left");
}

static void drops_fields_by_rank(void **state)
{
    screen     s;
    cli_status line;
    if (!screen_open(&s, 120)) skip();
    cli_status_open(&line, s.out);
    assert_true(line.terminal);
    fill(&line);
    cli_status_show(&line);
    expect(&s, "step 41/100000  loss 2.3400  lr 3.00e-04  norm 1.37  "
               "258 k tokens/s  1:23:45 left");
    resize(&s, 80); /* the width is that of now */
    fill(&line);
    cli_status_show(&line);
    expect(&s, "\r\033[Jstep 41/100000  loss 2.3400  lr 3.00e-04  "
               "258 k tokens/s  1:23:45 left");
    resize(&s, 42);
    fill(&line);
    cli_status_show(&line);
    expect(&s, "\r\033[Jstep 41/100000  loss 2.3400  1:23:45 left");
    resize(&s, 41);
    fill(&line);
    cli_status_show(&line);
    expect(&s, "\r\033[Jstep 41/100000  loss 2.3400");
    resize(&s, 10);
    fill(&line);
    cli_status_show(&line);
    expect(&s, "\r\033[Jstep 41/1");
    cli_status_leave(&line);
    expect(&s, "\n");
    screen_close(&s);
}

static void rows_are_redrawn_with_it(void **state)
{
    screen     s;
    cli_status line;
    if (!screen_open(&s, 12)) skip();
    cli_status_open(&line, s.out);
    cli_status_row(&line, "a row of more columns");
    cli_status_row(&line, "second");
    cli_status_field(&line, 0, "line");
    cli_status_show(&line);
    expect(&s, "a row of mo\nsecond\nline");
    cli_status_row(&line, "again");
    cli_status_show(&line);
    expect(&s, "\033[2A\r\033[Jagain\n");
    cli_status_clear(&line);
    expect(&s, "\033[1A\r\033[J");
    cli_status_clear(&line); /* nothing is there any more */
    expect(&s, "");
    screen_close(&s);
}

static void writes_whole_lines_elsewhere(void **state)
{
    char      *text = NULL;
    size_t     bytes = 0;
    cli_status line;
    FILE      *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    cli_status_open(&line, out);
    assert_false(line.terminal);
    assert_false(cli_status_at(&line, 0.5)); /* not before some seconds */
    cli_status_step(&line, "reading", 0.6);
    fflush(out);
    assert_string_equal(text, "");
    fill(&line);
    cli_status_show(&line);
    cli_status_clear(&line);
    cli_status_leave(&line);
    fclose(out);
    assert_string_equal(text, "step 41/100000  loss 2.3400  lr 3.00e-04  norm 1.37  "
                              "258 k tokens/s  1:23:45 left\n");
    free(text);
}

static void dumb_terminals_get_lines(void **state)
{
    screen     s;
    cli_status line;
    if (!screen_open(&s, 80)) skip();
    setenv("TERM", "dumb", 1);
    cli_status_open(&line, s.out);
    setenv("TERM", "xterm", 1);
    assert_false(line.terminal);
    cli_status_field(&line, 0, "line");
    cli_status_show(&line);
    expect(&s, "line\n");
    screen_close(&s);
}

static void computes_the_time_left(void **state)
{
    cli_status line;
    cli_status_open(&line, stderr);
    assert_true(cli_status_seconds_left(&line) < 0);
    cli_status_at(&line, 0.5); /* the clock starts here, as of a run that is resumed */
    assert_true(cli_status_seconds_left(&line) < 0);
    cli_status_at(&line, 0.75);
    line.began -= 10; /* 10 seconds for a quarter: 10 more for the last one */
    const double left = cli_status_seconds_left(&line);
    assert_true(left >= 10 && left < 12);
    cli_status_restart(&line);
    assert_true(cli_status_seconds_left(&line) < 0);
}

static void counts_columns(void **state)
{
    char  *text = NULL;
    size_t bytes = 0;
    FILE  *out = open_memstream(&text, &bytes);
    assert_int_equal(cli_columns("abc"), 3);
    assert_int_equal(cli_columns("│⣀█"), 3);
    assert_int_equal(cli_columns("日本"), 4);
    assert_int_equal(cli_columns("\xff\xc3"), 2); /* no UTF-8 */
    assert_int_equal(cli_put("日本語", 5, out), 4);
    assert_int_equal(cli_put("a\033[2J\x7f", 9, out), 6);
    fclose(out);
    assert_string_equal(text, "日本a?[2J?");
    free(text);
}

/* However many steps there are, the curve keeps means of all of them. */
static void curves_keep_all_steps(void **state)
{
    cli_curve c = {0};
    double    sum = 0;
    for (int i = 0; i < 5000; i++) cli_curve_add(&c, i);
    cli_curve_add(&c, NAN);
    assert_in_range(c.n, 200, 511);
    for (size_t i = 0; i < c.n; i++) {
        assert_true(i == 0 || c.y[i] > c.y[i - 1]);
        sum += c.y[i] * (double)c.each;
    }
    const double n = (double)c.n * (double)c.each;
    assert_true(fabs(sum - n * (n - 1) / 2) <= 1e-9 * sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drops_fields_by_rank),         cmocka_unit_test(rows_are_redrawn_with_it),
        cmocka_unit_test(writes_whole_lines_elsewhere), cmocka_unit_test(dumb_terminals_get_lines),
        cmocka_unit_test(computes_the_time_left),       cmocka_unit_test(counts_columns),
        cmocka_unit_test(curves_keep_all_steps),
    };
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    return check_main("status", NULL, 0, tests, COUNT(tests));
}
