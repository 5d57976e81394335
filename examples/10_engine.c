/* Several texts at a time: an engine takes jobs, and each of its steps reads the weights once for
 * all of them. A job gives the same tokens alone and in company; one that continues a named state
 * does not read what was read before it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dra/dra.h"

enum { JOBS = 3, TOKENS = 24 };
static const char *const prompts[JOBS] = {"Once upon a time", "It was", "What is a memory that"};
static dra_error         err;

typedef struct answer {
    int64_t     n, read; /* tokens that were written; of the prompt, without those kept */
    int32_t     id[TOKENS];
    dra_job_end end;
} answer;

static void must(dra_status status) /* a program may stop at the first error */
{
    if (status == DRA_OK) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

static bool on_token(void *user, const dra_job_token *token)
{
    answer *a = user;
    if (!token->prompt && !token->ends) a->id[a->n++] = token->id;
    return true; /* more of them */
}

static void on_end(void *user, const dra_job_result *result)
{
    answer *a = user;
    a->end = result->end;
    a->read = result->prompt_tokens - result->cached_tokens;
}

static void submit(dra_engine *e, dra_tokenizer *tokenizer, const char *prompt, dra_job_config job,
                   answer *a)
{
    dra_ids  ids = {0};
    uint64_t id;
    *a = (answer){.end = DRA_JOB_FAILED};
    must(dra_encode_as(tokenizer, prompt, strlen(prompt), DRA_ENCODE_BEGIN, &ids, &err));
    job.n = ids.n, job.ids = ids.data, job.tokens = TOKENS;
    job.sampler = (dra_sampler_config){.temperature = 0.8, .seed = 1};
    job.token = on_token, job.end = on_end, job.user = a;
    must(dra_engine_submit(e, &job, &id, &err)); /* copies what it needs */
    dra_ids_free(&ids);
}

static void run_all(dra_engine *e)
{
    for (bool idle = false; !idle;) must(dra_engine_step(e, &idle, &err));
}

static bool same(const answer *a, const answer *b)
{
    return a->end == DRA_JOB_DONE && b->end == DRA_JOB_DONE && a->n == b->n &&
           memcmp(a->id, b->id, (size_t)a->n * sizeof *a->id) == 0;
}

int main(void)
{
    dra_device       *cpu;
    dra_model        *model;
    dra_weights      *weights;
    dra_tokenizer    *tokenizer;
    dra_engine       *e;
    dra_model_config *config = NULL;
    answer            together[JOBS], alone[JOBS], more;
    int               equal = 0;
    must(dra_device_create_cpu(NULL, &cpu, &err));
    must(dra_preset_config("dra-delta-tiny", &config, &err));
    must(dra_model_create(config, &model, &err));
    dra_model_config_destroy(config);
    must(dra_weights_draw(model, 1, &weights, &err)); /* or dra_folder_load() */
    must(dra_tokenizer_bytes(&tokenizer, &err));
    const dra_engine_config make = {model, weights, cpu, tokenizer, .slots = JOBS};
    must(dra_engine_create(&make, &e, &err));

    for (int i = 0; i < JOBS; i++) /* the first also keeps its state under a name */
        submit(e, tokenizer, prompts[i], (dra_job_config){.save = i ? NULL : "tale"}, &together[i]);
    run_all(e);
    for (int i = 0; i < JOBS; i++) {
        submit(e, tokenizer, prompts[i], (dra_job_config){0}, &alone[i]);
        run_all(e);
        equal += same(&together[i], &alone[i]);
    }
    submit(e, tokenizer, " And then?", (dra_job_config){.state = "tale"}, &more);
    run_all(e);
    printf("%d of %d jobs: the same tokens alone and together; the last read %lld tokens\n", equal,
           JOBS, (long long)more.read);

    dra_engine_destroy(e), dra_tokenizer_destroy(tokenizer), dra_weights_destroy(weights);
    dra_model_destroy(model), dra_device_destroy(cpu);
    return equal != JOBS || more.end != DRA_JOB_DONE;
}
