/* What the newest sample attended to, and which slots hold it, in a few layers of each run. */
#include "page.h"
#include "layer_maps.h"
#include "io/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 24, LAYERS = 4 }; /* of what is shown */

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct reading { /* what was read */
    const dra_tokenizer *tokenizer;
    const int32_t       *ids;
} reading;

/* Blanks and line breaks are made visible. */
static const char *token_text(const reading *r, int64_t i, char text[32])
{
    size_t      bytes = 0, n = 0;
    const char *piece = dra_tokenizer_piece(r->tokenizer, r->ids[i], &bytes);
    for (size_t k = 0; piece && k < bytes && n < 24; k++) {
        const char *shown = piece[k] == ' ' ? "\u2423" : piece[k] == '\n' ? "\u21b5" : NULL;
        if (shown)
            n += (size_t)snprintf(text + n, 32 - n, "%s", shown);
        else if (piece[k])
            text[n++] = piece[k];
    }
    text[n] = '\0';
    return text;
}

/* ---- attention (1, H, T, rows) --------------------------------------------------------------- */

typedef struct attention {
    const cli_shown *map;
    const reading   *read;
    int64_t          columns;
    int64_t         *column; /* the rows that someone attends to: others are room of the state */
} attention;

static const char *reader_label(const void *user, int64_t row, char text[32])
{
    return token_text(((const attention *)user)->read, row, text);
}

static const char *read_label(const void *user, int64_t column, char text[32])
{
    const attention *a = user;
    return token_text(a->read, a->column[column], text);
}

static double mean_of_heads(const cli_shown *s, int64_t t, int64_t row)
{
    const int64_t H = s->shape.dim[1], T = s->shape.dim[2], n = s->shape.dim[3];
    double        sum = 0;
    for (int64_t h = 0; h < H; h++) sum += s->at[(h * T + t) * n + row];
    return sum / (double)H;
}

/* By its root, or what is spread over many would not be seen. */
static double attention_at(const void *user, int64_t row, int64_t column)
{
    const attention *a = user;
    return sqrt(fmax(mean_of_heads(a->map, row, a->column[column]), 0));
}

/* Rows of a state that grows are tokens; those of others are slots. */
static void write_attention(FILE *out, const cli_shown *s, const reading *read, const char *title,
                            size_t colour)
{
    const int64_t T = s->shape.dim[2], n = s->shape.dim[3];
    attention     a = {s, read, 0, cli_room((size_t)n + 1, sizeof *a.column)};
    bool          tokens = true;
    for (int64_t j = 0; a.column && j < n; j++) {
        double sum = 0;
        for (int64_t t = 0; t < T; t++) sum += mean_of_heads(s, t, j);
        if (sum > 0) a.column[a.columns++] = j;
        if (sum > 0 && j >= T) tokens = false;
        for (int64_t t = 0; t < j && t < T; t++) /* nobody attends to what comes later */
            if (mean_of_heads(s, t, j) > 0) tokens = false;
    }
    const svg_map m = {.title = title,
                       .note = "attention, mean of heads",
                       .rows_name = "token that reads",
                       .columns_name = tokens ? "token that is read" : "row of the state",
                       .rows = T,
                       .columns = a.columns,
                       .value = attention_at,
                       .row_label = reader_label,
                       .column_label = tokens ? read_label : NULL,
                       .user = &a,
                       .bar_name = "weight",
                       .root = true,
                       .colour = colour};
    if (a.columns) svg_heat(out, &m);
    free(a.column);
}

/* ---- occupancy (1, T, H, S) ------------------------------------------------------------------ */

typedef struct occupancy {
    const cli_shown *map;
    const reading   *read;
} occupancy;

static double occupancy_at(const void *user, int64_t row, int64_t column)
{
    const cli_shown *s = ((const occupancy *)user)->map;
    return s->at[column * s->shape.dim[2] * s->shape.dim[3] + row];
}

static const char *written_label(const void *user, int64_t column, char text[32])
{
    return token_text(((const occupancy *)user)->read, column, text);
}

static void write_occupancy(FILE *out, const cli_shown *s, const reading *read, const char *title,
                            size_t colour)
{
    const occupancy o = {s, read};
    const svg_map   m = {.title = title,
                         .note = "occupancy of slots",
                         .rows_name = "slot",
                         .columns_name = "token",
                         .rows = s->shape.dim[2] * s->shape.dim[3],
                         .columns = s->shape.dim[1],
                         .value = occupancy_at,
                         .column_label = written_label,
                         .user = &o,
                         .bar_name = "how full",
                         .colour = colour};
    svg_heat(out, &m);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void write_layer(FILE *out, const cli_record *r, int64_t layer, const cli_layer_maps *maps,
                        const reading *read, size_t colour)
{
    char       title[128];
    const bool blend = dra_mixer_config_of(dra_model_mixer(r->model, layer))->blend;
    for (int i = 0; i < 2; i++) {
        const cli_shown *attended = &maps->map[i][DRA_SHOW_ATTENTION];
        const cli_shown *full = &maps->map[i][DRA_SHOW_OCCUPANCY];
        snprintf(title, sizeof title, "%s, layer %lld%s", r->name, (long long)layer,
                 !blend ? ""
                 : i    ? ", memory b"
                        : ", memory a");
        if (attended->at) write_attention(out, attended, read, title, colour);
        if (full->at) write_occupancy(out, full, read, title, colour);
    }
}

/* The first tokens of the newest sample; as many as learned positions allow. */
static int64_t read_sample(const cli_record *r, dra_ids *ids)
{
    const dra_model_config *c = dra_model_config_of(r->model);
    const char             *text = r->samples[r->n_samples - 1].text;
    const dra_status st = dra_encode_as(r->tokenizer, text, strlen(text), DRA_ENCODE_BEGIN, ids,
                                        NULL);
    cli_memory_note(st);
    if (st != DRA_OK) return 0;
    int64_t n = ids->n < TOKENS ? (int64_t)ids->n : TOKENS;
    if (c->positions == DRA_POSITIONS_LEARNED && !c->xl.memory && n > c->context) n = c->context;
    for (int64_t i = 0; i < n; i++)
        if (ids->data[i] < 0 || ids->data[i] >= c->vocab) return i;
    return n;
}

/* Maps are large: they are folded. */
static void open_run(const cli_page *p, size_t i)
{
    fputs("<details class=\"card\"><summary>", p->out);
    page_key(p->out, i);
    svg_text(p->out, p->records[i].name);
    fputs("</summary><div class=\"cards\">\n", p->out);
}

static void write_run(const cli_page *p, size_t i, bool *open)
{
    bool              written = false;
    const cli_record *r = &p->records[i];
    dra_ids           ids = {0};
    const int64_t     T = read_sample(r, &ids), L = dra_model_attentions(r->model);
    const int64_t     shown = L < LAYERS ? L : LAYERS;
    for (int64_t k = 0; T > 1 && k < shown; k++) { /* evenly, from the first to the last */
        const int64_t  layer = shown > 1 ? k * (L - 1) / (shown - 1) : 0;
        cli_layer_maps maps = {0};
        dra_error      err = {0};
        cli_layer_maps_read(r->model, r->weights, layer, ids.data, T, &maps, &err);
        cli_memory_note(err.code);
        if (err.code != DRA_OK) continue; /* not every mixer has maps */
        if (!*open) {
            page_section(p->out, "What a sample reads");
            fprintf(p->out,
                    "<p class=\"soft\">The first %d tokens of the newest sample, read with the "
                    "newest weights; <span class=\"in-light\">darker</span><span "
                    "class=\"in-dark\">brighter</span> means more attention, or a fuller "
                    "slot.</p>\n",
                    TOKENS);
        }
        if (!written) open_run(p, i);
        *open = written = true;
        write_layer(p->out, r, layer, &maps, &(reading){r->tokenizer, ids.data}, i);
        cli_layer_maps_free(&maps);
    }
    if (written) fputs("</div></details>\n", p->out);
    dra_ids_free(&ids);
}

void page_maps(const cli_page *p)
{
    bool open = false;
    for (size_t i = 0; i < p->n; i++) {
        const cli_record *r = &p->records[i];
        if (r->weights && r->tokenizer && r->n_samples) write_run(p, i, &open);
    }
    if (open) fputs("</section>\n", p->out);
}
