/* What the demo has shown, in two paragraphs as one would tell them to a friend, made from the
 * numbers: what reading a long text costs, and what is known in the end. And what to try next. */
#include "demo.h"
#include "options/units.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

/* ---- claims ---------------------------------------------------------------------------------- */

/* "100,000". */
static const char *grouped_digits(int64_t n, char text[32])
{
    char      digits[24];
    const int many = snprintf(digits, sizeof digits, "%lld", (long long)n);
    int       used = 0;
    for (int i = 0; i < many; i++) {
        if (i && (many - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

enum { COST = 240 }; /* bytes of a text */

static const char *cost_text(const demo_model *m, char text[COST])
{
    const demo_cost *c = &m->cost;
    char             a[24], b[24], memory[80], micros[2][32];
    cli_bytes_text(c->bytes[0], a);
    cli_bytes_text(c->bytes[1], b);
    if (c->bytes[0] == c->bytes[1])
        snprintf(memory, sizeof memory, "stayed at %s", b);
    else
        snprintf(memory, sizeof memory, "grew from %s to %s", a, b);
    snprintf(text, COST,
             "%s's memory %s; a token took %s microseconds at the beginning and %s at the end.",
             m->called, memory, grouped_digits(llrint(c->micros[0]), micros[0]),
             grouped_digits(llrint(c->micros[1]), micros[1]));
    return text;
}

/* What the numbers of dra allow to be said; times vary a little. */
static const char *cost_verdict(const demo_cost *c)
{
    if (c->bytes[0] != c->bytes[1]) return "Memory and time";
    return c->micros[1] < 1.5 * c->micros[0] ? "Constant memory, constant speed"
                                             : "Constant memory";
}

/* How it went, by what can be told apart from chance. */
static const char *recall_verdict(const demo_recall *r)
{
    if (!r->knows[0] && !r->knows[1]) return "Neither has learned to remember";
    if (!r->knows[0] || r->better == 1) return "But dra remembers less";
    return r->better == 0 ? "And dra remembers more" : "And dra remembers just as well";
}

void demo_claims(const demo *d, char claims[DEMO_CLAIMS][DEMO_CLAIM])
{
    const demo_recall *r = &d->recall;
    char               a[COST], b[COST], n[4][32];
    snprintf(claims[0], DEMO_CLAIM, "%s: in %s tokens %s %s", cost_verdict(&d->model[0].cost),
             grouped_digits(d->stream, n[0]), cost_text(&d->model[0], a),
             cost_text(&d->model[1], b));
    snprintf(claims[1], DEMO_CLAIM,
             "%s: asked %s times for a name that was told %s tokens ago, dra was right %s times, "
             "the Transformer %s times, guessing about %s.",
             recall_verdict(r), grouped_digits(r->asked, n[0]), r->ago,
             grouped_digits(r->right[0], n[1]), grouped_digits(r->right[1], n[2]),
             grouped_digits(r->guess, n[3]));
}

/* ---- what next ------------------------------------------------------------------------------- */

/* How to call this program from here: by its path if it is below, else by its name. */
static const char *program_path(char path[DEMO_PATH])
{
    char          here[DEMO_PATH];
    const ssize_t n = readlink("/proc/self/exe", path, DEMO_PATH - 1);
    if (n <= 0 || !getcwd(here, sizeof here)) return "dra";
    path[n] = '\0';
    const size_t k = strlen(here);
    return strncmp(path, here, k) == 0 && path[k] == '/' ? path + k + 1 : "dra";
}

void demo_next(const demo *d)
{
    char        path[DEMO_PATH], room[CLI_CLEAN];
    const char *dra = program_path(path), *model = cli_clean(d->model[0].folder, room);
    FILE       *out = demo_out(d);
    fprintf(out,
            "  Try it yourself:\n"
            "    %s generate --model %s --prompt \"Once upon a time.\"\n"
            "    %s chat --model %s\n"
            "    %s serve --model %s\n"
            "    %s report %s\n\n",
            dra, model, dra, model, dra, model, dra, model);
    fprintf(out,
            "  With a text of your own:\n"
            "    %s train --preset dra-delta-tiny --data my.txt --out my-model\n"
            "    %s generate --model my-model --prompt \"Once upon a time\"\n\n",
            dra, dra);
}
