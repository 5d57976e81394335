/* What the terminal gets: colour where there is one, its width, errors, JSON text. */
#include "term.h"
#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool cli_moves(FILE *out)
{
    const char *term = getenv("TERM");
    return isatty(fileno(out)) && term && strcmp(term, "dumb") != 0;
}

static bool coloured(FILE *out)
{
    const char *off = getenv("NO_COLOR");
    return cli_moves(out) && !(off && *off);
}

const char *cli_bold(FILE *out) { return coloured(out) ? "\033[1m" : ""; }
const char *cli_green(FILE *out) { return coloured(out) ? "\033[1;32m" : ""; }
const char *cli_blue(FILE *out) { return coloured(out) ? "\033[1;34m" : ""; }
const char *cli_plain(FILE *out) { return coloured(out) ? "\033[0m" : ""; }

size_t cli_width(FILE *out)
{
    struct winsize size = {0};
    const int      file = fileno(out);
    if (file < 0 || ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

int cli_fail(const dra_error *err)
{
    fprintf(stderr, "dra: %s\n", err->text);
    return CLI_FAILED;
}

void cli_json_part(const char *text, size_t bytes, FILE *out)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
}

const char *cli_json_number(double x, int digits, char room[CLI_NUMBER])
{
    if (isfinite(x))
        snprintf(room, CLI_NUMBER, "%.*g", digits, x);
    else
        snprintf(room, CLI_NUMBER, "null");
    return room;
}

void cli_json_text(const char *text, FILE *out)
{
    fputc('"', out);
    cli_json_part(text, strlen(text), out);
    fputc('"', out);
}
