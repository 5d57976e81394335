/* Both models continue a story that neither has seen. */
#include "demo.h"
#include "verbs/train/progress.h"

#include <string.h>

enum { WRITTEN = 70 }; /* tokens */

typedef struct page { /* where a sample goes: lines to be read, and the report */
    demo_wrap wrap;
    FILE     *line;
} page;

static bool write_piece(void *user, int64_t row, const char *text, size_t bytes)
{
    page *p = user;
    demo_wrap_text(&p->wrap, text, bytes);
    cli_json_part(text, bytes, p->line);
    return !cli_progress_stopped();
}

static dra_status write_sample(const demo *d, const demo_model *m, const char *prompt,
                               const dra_ids *ids, dra_error *err)
{
    const dra_generator_config c = {.model = m->model,
                                    .weights = m->weights,
                                    .device = d->device,
                                    .tokenizer = d->tokenizer,
                                    .sampler = {.temperature = 0.7, .seed = d->seed}};
    page                       p = {{.out = demo_out(d), .margin = "  | "}, m->lines};
    const dra_generate_config  how = {.tokens = WRITTEN, .write = write_piece, .user = &p};
    dra_generator             *g = NULL;
    dra_generated              out;
    dra_status                 st = dra_generator_create(&c, &g, err);
    if (st == DRA_OK) st = dra_generator_read(g, 0, ids->n, ids->data, err);
    fprintf(demo_out(d), "\n  %s continues:\n", m->name);
    fprintf(m->lines, "{\"step\": %lld, \"sample\": \"", (long long)d->steps);
    cli_json_part(prompt, strlen(prompt), m->lines);
    if (st == DRA_OK) st = dra_generate(g, &how, &out, err);
    fputs("\"}\n", m->lines);
    demo_wrap_end(&p.wrap);
    dra_generator_destroy(g);
    return st;
}

dra_status demo_samples(demo *d, dra_error *err)
{
    story_config c = demo_story(d, DEMO_HELD_OUT, 0);
    story        s = {0};
    dra_ids      prompt = {0};
    demo_wrap    w = {.out = demo_out(d), .margin = "  | "};
    demo_heading(d, "The same beginning for both");
    c.facts = 2;
    c.gap = 0;
    c.sentences = 2; /* all is told, and things begin to return */
    story_write(&s, &c);
    demo_wrap_text(&w, s.text, s.bytes);
    demo_wrap_end(&w);
    dra_status st = s.failed ? cli_error(err, DRA_ERR_MEMORY, "out of memory")
                             : dra_encode(d->tokenizer, s.text, s.bytes, &prompt, err);
    for (int i = 0; i < DEMO_MODELS && st == DRA_OK; i++)
        st = write_sample(d, &d->model[i], s.text, &prompt, err);
    dra_ids_free(&prompt);
    story_free(&s);
    return st;
}
