/* Settings of the runs: a line of those that all share, and a table of all. */
#include "page.h"

#include <string.h>

/* ---- what runs share ------------------------------------------------------------------------- */

/* The value that all folders share; NULL: they differ, or none is known. */
static const char *shared_value(const cli_page *p, cli_fact_group group, const char *key)
{
    const char *value = NULL;
    for (size_t i = 0; i < p->n; i++) {
        const cli_facts *s = &p->records[i].settings;
        const char      *own = cli_facts_find(s, group, key);
        if (!s->n) continue;
        if (!own || (value && strcmp(value, own) != 0)) return NULL;
        value = own;
    }
    return value;
}

static void write_fact(FILE *out, bool *any, const char *before, const char *text,
                       const char *after)
{
    if (!text) return;
    fputs(*any ? " · " : "<p class=\"facts\">", out);
    fputs(before, out);
    svg_text(out, text);
    fputs(after, out);
    *any = true;
}

/* The date of the first start if there are several. */
static const char *first_date(const cli_page *p)
{
    const char *first = NULL;
    for (size_t i = 0; i < p->n; i++) {
        const char *date = cli_facts_find(&p->records[i].settings, CLI_FACT_START, "date");
        if (date && (!first || strcmp(date, first) < 0)) first = date;
    }
    return first;
}

static void write_command(FILE *out, const char *text)
{
    fputs("<code>", out);
    svg_text(out, text);
    fputs("</code></p>\n", out);
}

/* Writes the commands; several are folded. */
static void write_commands(const cli_page *p)
{
    const char *same = shared_value(p, CLI_FACT_START, "command");
    bool        open = false;
    if (same) {
        fputs("<p class=\"command\">", p->out);
        write_command(p->out, same);
        return;
    }
    for (size_t i = 0; i < p->n; i++) {
        const char *text = cli_facts_find(&p->records[i].settings, CLI_FACT_START, "command");
        if (!text) continue;
        if (!open) fputs("<details class=\"commands\"><summary>Commands</summary>\n", p->out);
        open = true;
        fputs("<p class=\"command\">", p->out);
        page_key(p->out, i);
        write_command(p->out, text);
    }
    if (open) fputs("</details>\n", p->out);
}

void page_facts(const cli_page *p)
{
    bool        any = false;
    const char *threads = shared_value(p, CLI_FACT_START, "threads");
    write_fact(p->out, &any, "", first_date(p), "");
    write_fact(p->out, &any, "", shared_value(p, CLI_FACT_START, "processor"), "");
    write_fact(p->out, &any, "", threads,
               threads && strcmp(threads, "1") == 0 ? " thread" : " threads");
    write_fact(p->out, &any, "", shared_value(p, CLI_FACT_START, "level"), "");
    write_fact(p->out, &any, "seed ", shared_value(p, CLI_FACT_TRAINING, "seed"), "");
    if (any) fputs("</p>\n", p->out);
    write_commands(p);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const char *const groups[CLI_FACT_GROUPS] = {"start", "training", "model", "data"};

static bool is_first(const cli_page *p, size_t record, const cli_fact *s)
{
    for (size_t i = 0; i < record; i++)
        if (cli_facts_find(&p->records[i].settings, s->group, s->key)) return false;
    return true;
}

static size_t count_folders(const cli_page *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) n += p->records[i].settings.n > 0;
    return n;
}

/* Writes a value; with several runs also the name of its run, which narrow screens show before
 * it. */
static void write_value(FILE *out, const char *run, const char *value)
{
    fputs(run ? "<td data-label=\"" : "<td", out);
    svg_text(out, run ? run : "");
    fputs(run ? "\">" : ">", out);
    if (value)
        svg_text(out, value);
    else
        fputs("–", out);
    fputs("</td>", out);
}

/* Writes a row; a value that all runs share is written once, over all columns. */
static void write_row(const cli_page *p, const cli_fact *s, bool same)
{
    const size_t n = count_folders(p);
    fputs("<tr><th>", p->out);
    svg_text(p->out, s->key);
    fputs("</th>", p->out);
    if (same && n > 1) {
        fprintf(p->out, "<td colspan=\"%zu\">", n);
        svg_text(p->out, s->value);
        fputs("</td>", p->out);
    } else {
        for (size_t i = 0; i < p->n; i++)
            if (p->records[i].settings.n)
                write_value(p->out, n > 1 ? p->records[i].name : NULL,
                            cli_facts_find(&p->records[i].settings, s->group, s->key));
    }
    fputs("</tr>\n", p->out);
}

/* Writes, or only counts, the rows of a group that are the same in all runs, or those that
 * differ. */
static size_t write_group(const cli_page *p, cli_fact_group group, bool same, bool count)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->records[i].settings.n; k++) {
            const cli_fact *s = &p->records[i].settings.all[k];
            if (s->group != group || !is_first(p, i, s)) continue;
            if ((shared_value(p, group, s->key) != NULL) != same) continue;
            n++;
            if (!count) write_row(p, s, same);
        }
    return n;
}

static void write_names(const cli_page *p)
{
    fputs("<tr class=\"head\"><th></th>", p->out);
    for (size_t i = 0; i < p->n; i++) {
        if (!p->records[i].settings.n) continue;
        fputs("<th>", p->out);
        page_key(p->out, i);
        svg_text(p->out, p->records[i].name);
        fputs("</th>", p->out);
    }
    fputs("</tr>\n", p->out);
}

static void write_table(const cli_page *p, const char *title, bool same, bool open)
{
    size_t all = 0;
    for (int g = 0; g < CLI_FACT_GROUPS; g++) all += write_group(p, (cli_fact_group)g, same, true);
    if (!all) return;
    fprintf(p->out,
            "<details class=\"card\"%s><summary>%s (%zu)</summary><div class=\"wide\">"
            "<table class=\"settings%s\">\n",
            open ? " open" : "", title, all, same ? "" : " differ");
    if (count_folders(p) > 1 && !same) write_names(p);
    for (int g = 0; g < CLI_FACT_GROUPS; g++) {
        if (!write_group(p, (cli_fact_group)g, same, true)) continue;
        fprintf(p->out, "<tr class=\"group\"><th colspan=\"%zu\">%s</th></tr>\n",
                count_folders(p) + 1, groups[g]);
        write_group(p, (cli_fact_group)g, same, false);
    }
    fputs("</table></div></details>\n", p->out);
}

void page_settings(const cli_page *p)
{
    const size_t n = count_folders(p);
    if (!n) return;
    page_section(p->out, "Settings");
    write_table(p, "What differs", false, true);
    write_table(p, n > 1 ? "What all runs share" : "All settings", true, false);
    fputs("</section>\n", p->out);
}
