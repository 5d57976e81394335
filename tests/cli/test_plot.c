/* Charts of dots: they fit the terminal, show what there is, and change in place only there. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "report/plot.h"

enum { N = 500 };

typedef struct drawing {
    cli_status screen;
    char      *text;
    size_t     bytes;
} drawing;

static void draw(drawing *d, bool terminal, size_t n, double first, double second)
{
    static double y[2][N];
    *d = (drawing){0};
    FILE *out = open_memstream(&d->text, &d->bytes);
    assert_non_null(out);
    cli_status_open(&d->screen, out);
    d->screen.terminal = terminal;
    for (size_t i = 0; i < N; i++) y[0][i] = first * (double)i, y[1][i] = second;
    const cli_plot plots[] = {{"one", y[0], n, N}, {"two", y[1], n, N}};
    cli_plots(&d->screen, 2, plots, true);
    fflush(d->screen.out);
}

static void drop(drawing *d)
{
    fclose(d->screen.out);
    free(d->text);
}

static size_t letters(const char *line)
{
    size_t n = 0;
    for (; *line && *line != '\n'; line++) n += (*line & 0xc0) != 0x80;
    return n;
}

static void fits_a_terminal(void **state)
{
    drawing d;
    draw(&d, true, N, 1e-9, 1e300);
    int lines = 0;
    for (const char *line = d.text; *line; line = strchr(line, '\n') + 1, lines++)
        assert_in_range(letters(line), 1, 79);
    assert_int_equal(lines, d.screen.rows);
    drop(&d);
}

/* A line along the bottom and one along the top; nothing where there are no numbers yet. */
static void shows_what_there_is(void **state)
{
    drawing d;
    draw(&d, true, N, 0, 7);
    assert_non_null(strstr(d.text, "7 │"));
    assert_non_null(strstr(d.text, "0 │⣀⣀⣀"));
    assert_non_null(strstr(d.text, "│⠉⠉⠉"));
    drop(&d);
    draw(&d, true, 0, 0, 7);
    assert_null(strstr(d.text, "⣀"));
    assert_null(strstr(d.text, "⠉"));
    drop(&d);
}

static void goes_back_on_a_terminal_only(void **state)
{
    drawing d;
    draw(&d, true, N, 1, 1);
    cli_status_clear(&d.screen);
    fflush(d.screen.out);
    assert_int_equal(d.screen.rows, 0);
    assert_non_null(strchr(d.text, '\033'));
    drop(&d);
    draw(&d, false, N, 1, 1);
    cli_status_clear(&d.screen);
    fflush(d.screen.out);
    assert_null(strchr(d.text, '\033'));
    drop(&d);
}

/* One curve is as wide as two. */
static void draws_one_curve(void **state)
{
    drawing      d = {0};
    const double y[] = {3, 2, 1};
    FILE        *out = open_memstream(&d.text, &d.bytes);
    assert_non_null(out);
    cli_status_open(&d.screen, out);
    d.screen.terminal = true;
    cli_plots(&d.screen, 1, &(cli_plot){"loss", y, 3, 3, "step", 0, 500}, true);
    fflush(out);
    assert_int_equal(d.screen.rows, CLI_PLOT_ROWS);
    const char *scale = strstr(d.text, "\n          0  ");
    assert_non_null(scale);
    assert_non_null(strstr(scale, "  step 250  "));
    assert_int_equal(letters(scale + 1), 10 + 66);
    assert_string_equal(scale + 1 + 10 + 66 - 3, "500\n");
    assert_int_equal(letters(strstr(d.text, "3 │")), 69);
    drop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_a_terminal),
        cmocka_unit_test(shows_what_there_is),
        cmocka_unit_test(goes_back_on_a_terminal_only),
        cmocka_unit_test(draws_one_curve),
    };
    return check_main("plot", NULL, 0, tests, COUNT(tests));
}
