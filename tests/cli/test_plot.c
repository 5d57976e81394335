/* Charts of dots: they fit the terminal, show what there is, and change in place only there. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "plot.h"

enum { N = 500 };

typedef struct drawing {
    cli_screen screen;
    char      *text;
    size_t     bytes;
} drawing;

static void draw(drawing *d, bool terminal, size_t n, double first, double second)
{
    static double y[2][N];
    *d = (drawing){.screen = {.terminal = terminal}};
    d->screen.out = open_memstream(&d->text, &d->bytes);
    assert_non_null(d->screen.out);
    for (size_t i = 0; i < N; i++) y[0][i] = first * (double)i, y[1][i] = second;
    const cli_plot plots[] = {{"one", y[0], n, N}, {"two", y[1], n, N}};
    cli_plot_pair(&d->screen, plots, true);
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
    assert_int_equal(lines, d.screen.lines);
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
    cli_screen_back(&d.screen);
    fflush(d.screen.out);
    assert_int_equal(d.screen.lines, 0);
    assert_non_null(strchr(d.text, '\033'));
    drop(&d);
    draw(&d, false, N, 1, 1);
    cli_screen_back(&d.screen);
    fflush(d.screen.out);
    assert_null(strchr(d.text, '\033'));
    assert_false(cli_screen_due(&d.screen));
    drop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_a_terminal),
        cmocka_unit_test(shows_what_there_is),
        cmocka_unit_test(goes_back_on_a_terminal_only),
    };
    return check_main("plot", NULL, 0, tests, COUNT(tests));
}
