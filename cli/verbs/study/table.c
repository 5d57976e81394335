/* A study as tables: groups of each block, and verdicts. */
#include "study.h"

#include <math.h>
#include <string.h>

static const char *number_text(double x, const char *format, char text[32])
{
    if (isfinite(x))
        snprintf(text, 32, format, x);
    else
        snprintf(text, 32, "-");
    return text;
}

static const char *window_text(const cli_study_group *g, char text[64])
{
    if (!isfinite(g->low))
        snprintf(text, 64, "-");
    else if (g->low == g->high)
        snprintf(text, 64, "%g", g->low);
    else
        snprintf(text, 64, "%g to %g", g->low, g->high);
    return text;
}

static const char *best_text(const cli_study_block *b, const cli_study_group *g)
{
    return b->tune >= 0 && g->best >= 0 ? b->over.axis[b->tune].value[g->best] : "-";
}

static void write_group(const cli_study_block *b, const cli_study_group *g, FILE *out)
{
    char name[120], clean[CLI_CLEAN], mean[32], spread[32], half[32], window[64];
    cli_study_group_name(b, g, name, sizeof name);
    fprintf(out, "%-32s  %10s  %10s  %10s  %3lld/%lld  %8s  %s\n", cli_clean(name, clean),
            number_text(g->mean, "%.4f", mean), number_text(g->spread, "%.4f", spread),
            number_text(g->half, "%.4f", half), (long long)g->n, (long long)g->wanted,
            best_text(b, g), window_text(g, window));
}

static void write_block(const cli_study *s, size_t block, const cli_study_lines *l, FILE *out)
{
    const cli_study_block *b = &s->blocks[block];
    char                   clean[CLI_CLEAN];
    cli_study_group        g;
    bool                   head = false;
    for (int64_t i = 0; i < cli_study_groups(b); i++) {
        cli_study_group_at(s, block, l, i, &g);
        if (g.best < 0 || !g.n) continue;
        if (!head)
            fprintf(out, "%-32s  %10.10s  %10s  %10s  %5s  %8s  %s\n", cli_clean(b->name, clean),
                    b->score, "spread", "+-95 %", "seeds",
                    b->tune < 0 ? "best" : b->over.axis[b->tune].name, "window");
        head = true;
        write_group(b, &g, out);
    }
    if (head) fputc('\n', out);
}

static void write_verdicts(const cli_study *s, const cli_study_lines *l, FILE *out)
{
    size_t            i;
    json_t           *claim;
    cli_study_verdict v;
    char              of[32], against[32];
    if (!json_array_size(s->claims)) return;
    fprintf(out, "%5s  %-8s  %-28s  %-28s\n", "claim", "verdict", "of", "against");
    json_array_foreach(s->claims, i, claim)
    {
        char left[200], right[200];
        cli_study_judge(s, l, claim, &v);
        snprintf(left, sizeof left, "%s %s", number_text(v.of, "%.4f", of), v.of_name);
        snprintf(right, sizeof right, "%s %s", number_text(v.against, "%.4f", against),
                 v.against_name);
        fprintf(out, "%5lld  %-8s  %-28s  %s\n",
                (long long)json_integer_value(json_object_get(claim, "claim")), v.word, left,
                right);
    }
}

void cli_study_table(const cli_study *s, const cli_study_lines *l, FILE *out)
{
    for (size_t i = 0; i < s->n_blocks; i++) write_block(s, i, l, out);
    write_verdicts(s, l, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_real(FILE *out, const char *key, double x)
{
    char room[CLI_NUMBER];
    fprintf(out, ", \"%s\": %s", key, cli_json_number(x, 9, room));
}

static void put_group(const cli_study_block *b, const cli_study_group *g, FILE *out)
{
    char name[120];
    cli_study_group_name(b, g, name, sizeof name);
    fputs("{\"group\": ", out);
    cli_json_text(name, out);
    put_real(out, "mean", g->mean);
    put_real(out, "spread", g->spread);
    put_real(out, "interval", g->half);
    fprintf(out, ", \"seeds\": %lld, \"of\": %lld", (long long)g->n, (long long)g->wanted);
    if (b->tune >= 0 && g->best >= 0) {
        fputs(", \"best\": ", out);
        cli_json_text(b->over.axis[b->tune].value[g->best], out);
        put_real(out, "window_from", g->low);
        put_real(out, "window_to", g->high);
    }
    fputc('}', out);
}

static void put_verdicts(const cli_study *s, const cli_study_lines *l, FILE *out)
{
    size_t            i;
    json_t           *claim;
    cli_study_verdict v;
    json_array_foreach(s->claims, i, claim)
    {
        cli_study_judge(s, l, claim, &v);
        fprintf(out, "%s{\"claim\": %lld, \"verdict\": \"%s\"", i ? ", " : "",
                (long long)json_integer_value(json_object_get(claim, "claim")), v.word);
        put_real(out, "of", v.of);
        put_real(out, "against", v.against);
        put_real(out, "spread", v.spread);
        fputc('}', out);
    }
}

void cli_study_print_json(const cli_study *s, const cli_study_lines *l, FILE *out)
{
    fputs("{\"study\": ", out);
    cli_json_text(s->name, out);
    fputs(", \"blocks\": [", out);
    for (size_t i = 0; i < s->n_blocks; i++) {
        fprintf(out, "%s{\"name\": ", i ? ", " : "");
        cli_json_text(s->blocks[i].name, out);
        fputs(", \"score\": ", out);
        cli_json_text(s->blocks[i].score, out);
        fputs(", \"groups\": [", out);
        for (int64_t k = 0; k < cli_study_groups(&s->blocks[i]); k++) {
            cli_study_group g;
            cli_study_group_at(s, i, l, k, &g);
            fputs(k ? ", " : "", out);
            put_group(&s->blocks[i], &g, out);
        }
        fputs("]}", out);
    }
    fputs("], \"claims\": [", out);
    put_verdicts(s, l, out);
    fputs("]}\n", out);
}
