/* The rows of a benchmark, as a table and as JSON. */
#include "bench.h"
#include "options/options.h"
#include "options/term.h"

#include <string.h>
#include <unistd.h>

enum { NAME = 22 };

void bench_write_list(void)
{
    printf("%s%-*s  %-9s  what%s\n", cli_bold(stdout), NAME, "name", "group", cli_plain(stdout));
    for (size_t i = 0; i < bench_case_count; i++) {
        const bench_case *c = &bench_cases[i];
        cli_fold(NAME + 13, stdout, "%-*s  %-9s  %s%s", NAME, c->name, c->group, c->about,
                 strcmp(c->group, BENCH_GPU) == 0 ? " (only by name, or as 'gpu --all')"
                 : c->slow                        ? " (only by name or with --all)"
                                                  : "");
    }
}

/* ---- bars ------------------------------------------------------------------------------------ */

/* The number that a row's bar is about; false if it is not known: no bar, or no peer here. */
static bool reached_of(const bench_row *r, double *reached)
{
    switch (r->bar.against) {
    case BENCH_LIMIT: *reached = r->percent; return r->bound != NULL;
    case BENCH_PEER: *reached = r->peer; return r->peer > 0;
    case BENCH_NODE: *reached = 1e6 * r->seconds / r->units; return r->units > 0;
    case BENCH_NOTHING: break;
    }
    return false;
}

/* Two runs may differ by 5 %, so a miss by that much still meets the bar. */
static bool meets_bar(const bench_row *r)
{
    const bench_bar *b = &r->bar;
    double           reached;
    if (!reached_of(r, &reached)) return false;
    return b->against == BENCH_NODE ? reached <= 1.05 * b->value : reached >= 0.95 * b->value;
}

/* ---- table ----------------------------------------------------------------------------------- */

static const char *duration_text(double seconds, char *text, size_t size)
{
    if (seconds < 1e-3)
        snprintf(text, size, "%.2f us", 1e6 * seconds);
    else if (seconds < 1)
        snprintf(text, size, "%.2f ms", 1e3 * seconds);
    else
        snprintf(text, size, "%.2f s", seconds);
    return text;
}

static const char *number_text(double x, int digits, char *text, size_t size)
{
    snprintf(text, size, "%.*f", digits, x);
    return x > 0 ? text : "-";
}

static void write_header(const bench_session *s)
{
    char threads[32] = "";
    if (!s->gpu) snprintf(threads, sizeof threads, ", %d threads", dra_device_threads(s->device));
    printf("dra %s, level %s%s, median of %d\n", dra_version(), dra_device_level(s->device),
           threads, s->repeats);
}

static void write_limits(const bench_session *s)
{
    const dra_limits *l = &s->limits;
    char              tf32[32] = "", bf16[32] = "", more[192], file[96] = "";
    if (l->tf32_flops > 0) snprintf(tf32, sizeof tf32, ", %.1f tf32", 1e-9 * l->tf32_flops);
    if (l->bf16_flops > 0) snprintf(bf16, sizeof bf16, ", %.1f bf16", 1e-9 * l->bf16_flops);
    if (l->mapped > 0)
        snprintf(file, sizeof file, "; a mapped file to it %.1f GB/s, %.0f %% (read before: %.1f)",
                 1e-9 * l->mapped, 100 * l->mapped / l->upload, 1e-9 * l->touched);
    if (s->gpu)
        snprintf(more, sizeof more, "pinned memory of the host: to the GPU %.1f, back %.1f GB/s%s",
                 1e-9 * l->upload, 1e-9 * l->download, file);
    else
        snprintf(more, sizeof more,
                 "streaming stores: write %.1f, copy %.1f GB/s; caches %.0f, %.0f, %.0f KiB",
                 1e-9 * l->streaming_write, 1e-9 * l->streaming_copy, l->cache[0] / 1024,
                 l->cache[1] / 1024, l->cache[2] / 1024);
    cli_fold(8, stdout, "limits: %.1f GFLOP/s %s%s%s; read %.1f, write %.1f, copy %.1f GB/s; %s",
             1e-9 * l->flops, dra_dtype_get(DRA_REAL)->name, tf32, bf16, 1e-9 * l->read,
             1e-9 * l->write, 1e-9 * l->copy, more);
    putchar('\n');
}

/* "1.32 us a node", "680 tokens/s, 612 MiB". */
static void write_units(const bench_row *r)
{
    if (!r->unit) return;
    if (strcmp(r->unit, "node") == 0)
        printf("  %.2f us a node", 1e6 * r->seconds / r->units);
    else
        printf("  %.1f %ss/s, %.0f MiB", r->units / r->seconds, r->unit,
               (double)r->memory / (1 << 20));
}

/* "75 limit  yes", "185 full  no", "95 peer  -" where there is none; nothing without a bar. */
static void write_bar(const bench_row *r)
{
    const char *const of[] = {"", "limit", r->c->rival ? "full" : "peer", "us"};
    const bench_bar  *b = &r->bar;
    char              text[32] = "";
    double            reached;
    if (b->against != BENCH_NOTHING)
        snprintf(text, sizeof text, "%g %s", b->value, of[b->against]);
    else if (!r->unit)
        return;
    printf("  %8s  %3s", text,
           !*text                     ? ""
           : !reached_of(r, &reached) ? "-"
           : meets_bar(r)             ? "yes"
                                      : "no");
}

/* On a narrow terminal the name and the units get lines of their own. */
static bool is_narrow(void) { return isatty(STDOUT_FILENO) && cli_width(stdout) < 120; }

static void write_name(const char *name)
{
    if (is_narrow())
        printf("%s\n", name);
    else
        printf("%-*s", NAME, name);
}

static void write_row(const bench_row *r)
{
    char time[32], flops[32], bytes[32], percent[32], peer[32];
    write_name(r->c->name);
    printf("  %10s  %8s  %7s  %-7s  %5s  %5s", duration_text(r->seconds, time, sizeof time),
           number_text(1e-9 * r->flops / r->seconds, 1, flops, sizeof flops),
           number_text(1e-9 * r->bytes / r->seconds, 1, bytes, sizeof bytes),
           r->bound ? r->bound : "-",
           r->bound ? number_text(r->percent, 1, percent, sizeof percent) : "-",
           number_text(r->peer, 1, peer, sizeof peer));
    write_bar(r);
    if (r->unit && is_narrow()) fputs("\n  ", stdout);
    write_units(r);
    putchar('\n');
}

void bench_write_table(const bench_session *s, const bench_row *rows, size_t n)
{
    write_header(s);
    write_limits(s);
    if (n == 0) return;
    fputs(cli_bold(stdout), stdout);
    write_name("case");
    printf("  %10s  %8s  %7s  %-7s  %5s  %5s  %8s  %3s%s\n", "time", "GFLOP/s", "GB/s", "bound",
           "%", "peer%", "bar", "met", cli_plain(stdout));
    for (size_t i = 0; i < n; i++) write_row(&rows[i]);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_field(const char *name, double x)
{
    char room[CLI_NUMBER];
    printf(", \"%s\": %s", name, cli_json_number(x, 9, room));
}

static void json_field_or_null(const char *name, double x, bool known)
{
    if (known)
        json_field(name, x);
    else
        printf(", \"%s\": null", name);
}

static void json_text_field(const char *name, const char *text)
{
    printf(", \"%s\": ", name);
    if (text)
        cli_json_text(text, stdout);
    else
        fputs("null", stdout);
}

static void write_json_bar(const bench_row *r)
{
    static const char *const of[] = {NULL, "percent", "peer_percent", "us_a_node"};
    const bench_bar         *b = &r->bar;
    double                   reached;
    json_field_or_null("bar", b->value, b->against != BENCH_NOTHING);
    json_text_field("bar_of", of[b->against]);
    printf(", \"met\": %s", !reached_of(r, &reached) ? "null" : meets_bar(r) ? "true" : "false");
}

static void write_json_row(const bench_row *r)
{
    fputs("{\"name\": ", stdout);
    cli_json_text(r->c->name, stdout);
    json_text_field("group", r->c->group);
    json_text_field("about", r->c->about);
    json_field("seconds", r->seconds);
    json_field("seconds_min", r->least);
    json_field("seconds_max", r->most);
    json_field("repeats", r->repeats);
    json_field_or_null("flops", r->flops, r->flops > 0);
    json_field_or_null("bytes", r->bytes, r->bytes > 0);
    json_text_field("bound", r->bound);
    json_field_or_null("percent", r->percent, r->bound);
    json_field_or_null("streaming_percent", r->streaming_percent, r->streaming_percent > 0);
    json_text_field("peer", r->c->rival ? "full precision" : r->peer > 0 ? "oneDNN sgemm" : NULL);
    json_field_or_null("peer_percent", r->peer, r->peer > 0);
    write_json_bar(r);
    json_text_field("unit", r->unit);
    json_field_or_null("units", r->units, r->unit);
    json_field_or_null("unit_seconds", r->unit ? r->seconds / r->units : 0, r->unit);
    json_field("memory", (double)r->memory);
    putchar('}');
}

void bench_write_json_limits(const dra_limits *l)
{
    char room[CLI_NUMBER];
    printf("\"flops\": %s", cli_json_number(l->flops, 9, room));
    json_field_or_null("tf32_flops", l->tf32_flops, l->tf32_flops > 0);
    json_field_or_null("bf16_flops", l->bf16_flops, l->bf16_flops > 0);
    json_field("read", l->read);
    json_field("write", l->write);
    json_field("copy", l->copy);
    json_field_or_null("streaming_write", l->streaming_write, l->streaming_write > 0);
    json_field_or_null("streaming_copy", l->streaming_copy, l->streaming_copy > 0);
    json_field_or_null("upload", l->upload, l->upload > 0);
    json_field_or_null("download", l->download, l->download > 0);
    json_field_or_null("mapped", l->mapped, l->mapped > 0);
    json_field_or_null("touched", l->touched, l->touched > 0);
    fputs(", \"cache\": [", stdout);
    for (int i = 0; i < 3; i++)
        printf("%s%s", i ? ", " : "", cli_json_number(l->cache[i], 12, room));
    putchar(']');
}

void bench_write_json(const bench_session *s, const bench_row *rows, size_t n)
{
    fputs("{\"version\": ", stdout);
    cli_json_text(dra_version(), stdout);
    json_text_field("level", dra_device_level(s->device));
    json_text_field("real", dra_dtype_get(DRA_REAL)->name);
    json_field("threads", dra_device_threads(s->device));
    json_field("repeats", s->repeats);
    fputs(",\n \"limits\": {", stdout);
    bench_write_json_limits(&s->limits);
    fputs("},\n \"cases\": [", stdout);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? ",\n  " : "\n  ", stdout);
        write_json_row(&rows[i]);
    }
    puts("\n]}");
}

/* ---- one run by op --------------------------------------------------------------------------- */

void bench_write_profile(const char *name, const dra_profile_row *rows, size_t n)
{
    double all = 0;
    for (size_t i = 0; i < n; i++) all += rows[i].seconds;
    fputc('\n', stderr);
    cli_line(stderr, "%-22s %6s %10s %6s %9s %8s", name, "calls", "ms", "%", "GFLOP/s", "GB/s");
    for (size_t i = 0; i < n; i++) {
        const dra_profile_row *r = &rows[i];
        const double           s = r->seconds > 0 ? r->seconds : 1e-9;
        cli_line(stderr, "  %-20s %6lld %10.3f %6.1f %9.1f %8.1f", r->op, (long long)r->calls,
                 1e3 * r->seconds, all > 0 ? 100 * r->seconds / all : 0, 1e-9 * r->flops / s,
                 1e-9 * r->bytes / s);
    }
}
