/* The fields of a request for text: the tables of both OpenAI routes, and checks across fields. */
#include "ask.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SERVE_F_double SERVE_F_REAL
#define SERVE_F_int64_t SERVE_F_INT
#define SAMPLER_FIELD(with, kind, type, name, option, json, ...)                                   \
    {json, SERVE_F_##type, offsetof(serve_ask, sampler.name), SAMPLER_RANGE(__VA_ARGS__)},
#define SAMPLER_RANGE(hf, least, most, ...) least, most

#define BOTH                                                                                       \
    {"model", SERVE_F_WORD, offsetof(serve_ask, model)},                                           \
        {"max_tokens", SERVE_F_INT, offsetof(serve_ask, max_tokens), 0, INT32_MAX},                \
        {"n", SERVE_F_INT, offsetof(serve_ask, n), 1, 128},                                        \
        {"seed", SERVE_F_ANY, offsetof(serve_ask, seed_json)},                                     \
        {"ignore_eos", SERVE_F_BOOL, offsetof(serve_ask, ignore_end)},                             \
        {"return_token_ids", SERVE_F_BOOL, offsetof(serve_ask, return_ids)},                       \
        {"response_format", SERVE_F_ANY, offsetof(serve_ask, response_format)},                    \
        {"grammar", SERVE_F_WORD, offsetof(serve_ask, grammar)}, {"user", SERVE_F_LABEL},          \
        {"metadata", SERVE_F_LABEL}, {"safety_identifier", SERVE_F_LABEL},                         \
        {"prompt_cache_key", SERVE_F_LABEL},                                                       \
        {"store", SERVE_F_REFUSED, .why = not_done, .idle = "[false]"},                            \
        {"service_tier", SERVE_F_REFUSED, .why = not_done, .idle = "[\"auto\", \"default\"]"},     \
        {"use_beam_search", SERVE_F_REFUSED, .why = not_done, .idle = "[false]"},                  \
        {"skip_special_tokens", SERVE_F_REFUSED, .why = not_done, .idle = "[true]"},               \
        {"stop", SERVE_F_ANY, offsetof(serve_ask, stop)},                                          \
        {"stop_token_ids", SERVE_F_ANY, offsetof(serve_ask, stop_token_ids)},                      \
        DRA_SAMPLER_OPTIONS(SAMPLER_FIELD, ) /* all of them */                                     \
        {"logit_bias", SERVE_F_ANY, offsetof(serve_ask, logit_bias)},                              \
        {"logprobs", SERVE_F_ANY, offsetof(serve_ask, logprobs_json)},                             \
        {"prompt_logprobs", SERVE_F_INT, offsetof(serve_ask, prompt_logprobs), 0, SERVE_TOP},      \
        {"stream", SERVE_F_BOOL, offsetof(serve_ask, stream)},                                     \
        {"stream_options", SERVE_F_ANY, offsetof(serve_ask, stream_options)},                      \
        {"dra_state", SERVE_F_WORD, offsetof(serve_ask, state)},                                   \
        {"dra_save_state", SERVE_F_WORD, offsetof(serve_ask, save_state)},                         \
        {"dra_state_data", SERVE_F_ANY, offsetof(serve_ask, state_data)},                          \
        {"dra_return_state", SERVE_F_BOOL, offsetof(serve_ask, return_state)},                     \
    {                                                                                              \
        "dra_look", SERVE_F_BOOL, offsetof(serve_ask, look)                                        \
    }

static const char not_done[] = "this server does not do that";

static const serve_field completion_fields[] = {
    {"prompt", SERVE_F_ANY, offsetof(serve_ask, prompt)},
    {"echo", SERVE_F_BOOL, offsetof(serve_ask, echo)},
    BOTH,
    {"best_of", SERVE_F_REFUSED, .why = not_done, .idle = "[1]"},
    {"suffix", SERVE_F_REFUSED, .why = not_done, .idle = "[\"\"]"},
};

static const serve_field chat_fields[] = {
    {"messages", SERVE_F_ANY, offsetof(serve_ask, how.messages)},
    {"max_completion_tokens", SERVE_F_ANY, offsetof(serve_ask, max_completion)},
    {"chat_template_kwargs", SERVE_F_ANY, offsetof(serve_ask, how.variables)},
    {"add_generation_prompt", SERVE_F_BOOL, offsetof(serve_ask, how.answer)},
    {"continue_final_message", SERVE_F_BOOL, offsetof(serve_ask, how.go_on)},
    {"dra_after_answer", SERVE_F_BOOL, offsetof(serve_ask, how.after)},
    {"top_logprobs", SERVE_F_INT, offsetof(serve_ask, top_logprobs), 0, SERVE_TOP},
    BOTH,
    {"tools", SERVE_F_ANY, offsetof(serve_ask, tool_list)},
    {"tool_choice", SERVE_F_ANY, offsetof(serve_ask, tool_choice)},
    {"parallel_tool_calls", SERVE_F_BOOL, offsetof(serve_ask, parallel)},
    {"functions", SERVE_F_REFUSED, .why = not_done, .idle = "[[]]"},
    {"function_call", SERVE_F_REFUSED, .why = not_done, .idle = "[\"none\", \"auto\"]"},
    {"modalities", SERVE_F_REFUSED, .why = not_done, .idle = "[[\"text\"]]"},
};

/* ---- fields that are more than a number ------------------------------------------------------ */

static bool add_stop(serve_ask *a, json_t *x, serve_error *e)
{
    if (!serve_is_word(x) || !json_string_length(x))
        return serve_wrong(e, 400, "stop", "stop: expected texts that are not empty, found %s",
                           json_is_string(x) ? "another" : serve_kind_name(x));
    if (json_string_length(x) > SERVE_STOP_BYTES)
        return serve_wrong(e, 400, "stop", "stop: expected texts of at most %d bytes",
                           SERVE_STOP_BYTES);
    if (a->n_stop == SERVE_STOPS)
        return serve_wrong(e, 400, "stop", "stop: expected at most %d", SERVE_STOPS);
    a->stops[a->n_stop++] = json_string_value(x);
    return true;
}

static bool read_stop(serve_ask *a, serve_error *e)
{
    size_t  i;
    json_t *x;
    if (!a->stop) return true;
    if (!json_is_array(a->stop)) return add_stop(a, a->stop, e);
    json_array_foreach(a->stop, i, x) if (!add_stop(a, x, e)) return false;
    return true;
}

/* Adds a token to the last list of stop tokens, whose ids are one after another. */
static bool add_stop_id(serve_ask *a, int *n, json_t *x, serve_error *e)
{
    const json_int_t id = json_is_integer(x) ? json_integer_value(x) : -1;
    dra_ids         *list = &a->stop_tokens[a->n_stop_tokens - 1];
    if (id < 0 || id > INT32_MAX)
        return serve_wrong(e, 400, "stop_token_ids",
                           "stop_token_ids: expected ids of tokens, or lists of them, found %s",
                           json_is_number(x) ? "another number" : serve_kind_name(x));
    if (*n == SERVE_STOP_IDS)
        return serve_wrong(e, 400, "stop_token_ids", "stop_token_ids: expected at most %d ids",
                           SERVE_STOP_IDS);
    a->stop_ids[(*n)++] = (int32_t)id;
    list->n++;
    return true;
}

/* [187]: each ends the text; [[187, 187]]: where they come in a row. */
static bool read_stop_tokens(serve_ask *a, serve_error *e)
{
    size_t  i, k;
    json_t *x, *y;
    int     n = 0;
    bool    well = true;
    if (a->stop_token_ids && !json_is_array(a->stop_token_ids))
        return serve_wrong(e, 400, "stop_token_ids", "stop_token_ids: expected a list, found %s",
                           serve_kind_name(a->stop_token_ids));
    json_array_foreach(a->stop_token_ids, i, x)
    {
        if (a->n_stop_tokens == SERVE_STOPS)
            return serve_wrong(e, 400, "stop_token_ids", "stop_token_ids: expected at most %d",
                               SERVE_STOPS);
        a->stop_tokens[a->n_stop_tokens++].data = a->stop_ids + n;
        if (json_is_array(x) && json_array_size(x)) {
            json_array_foreach(x, k, y) well = well && add_stop_id(a, &n, y, e);
        } else {
            well = add_stop_id(a, &n, x, e);
        }
        if (!well) return false;
    }
    return true;
}

/* {"50256": -100}: ids as keys. */
static bool read_bias(serve_ask *a, serve_error *e)
{
    json_t     *map = a->logit_bias, *x;
    const char *key;
    if (map && !json_is_object(map))
        return serve_wrong(e, 400, "logit_bias", "logit_bias: expected an object of ids, found %s",
                           serve_kind_name(map));
    if (json_object_size(map) > SERVE_BIASES)
        return serve_wrong(e, 400, "logit_bias", "logit_bias: expected at most %d ids",
                           SERVE_BIASES);
    json_object_foreach(map, key, x)
    {
        char      *end;
        const long id = strtol(key, &end, 10);
        if (*end || end == key || id < 0 || id > INT32_MAX)
            return serve_wrong(e, 400, "logit_bias",
                               "logit_bias: expected ids as keys, found %.40s", key);
        const double by = json_number_value(x);
        if (!json_is_number(x) || by < -100 || by > 100)
            return serve_wrong(e, 400, "logit_bias", "logit_bias: expected -100 to 100 for %ld",
                               id);
        a->bias[a->n_bias++] = (dra_token_bias){(int32_t)id, by};
    }
    a->sampler.n_bias = a->n_bias;
    a->sampler.bias = a->bias;
    return true;
}

static bool is_within(const json_t *x, int64_t least, int64_t most)
{
    return json_is_integer(x) && json_integer_value(x) >= least && json_integer_value(x) <= most;
}

/* A number in the older schema, true and top_logprobs in the newer. */
static bool read_logprobs(serve_ask *a, serve_error *e)
{
    json_t *x = json_is_false(a->logprobs_json) ? NULL : a->logprobs_json;
    a->logprobs = -1;
    if (x && !(a->chat ? json_is_boolean(x) : json_is_number(x)))
        return serve_wrong(e, 400, "logprobs", "logprobs: expected %s, found %s",
                           a->chat ? "a bool" : "a number", serve_kind_name(x));
    if (x && !a->chat && !is_within(x, 0, SERVE_TOP))
        return serve_wrong(e, 400, "logprobs", "logprobs: expected 0 to %d, found %g", SERVE_TOP,
                           json_number_value(x));
    if (x && !a->chat) a->logprobs = json_integer_value(x);
    if (a->chat && json_is_true(x)) a->logprobs = a->top_logprobs > 0 ? a->top_logprobs : 0;
    if (a->top_logprobs > 0 && a->chat && a->logprobs < 0)
        return serve_wrong(e, 400, "top_logprobs", "top_logprobs: expected logprobs: true with it");
    return true;
}

static bool read_stream(serve_ask *a, serve_error *e)
{
    static const serve_field fields[] = {
        {"include_usage", SERVE_F_BOOL, offsetof(serve_ask, usage)}};
    json_t *x = a->stream_options;
    if (a->look && !a->stream)
        return serve_wrong(e, 400, "dra_look", "dra_look: expected stream: true with it");
    if (a->prompt_logprobs >= 0 && a->stream)
        return serve_wrong(e, 400, "prompt_logprobs",
                           "prompt_logprobs: expected no stream: true with it");
    if (!x) return true;
    if (!json_is_object(x) || !a->stream)
        return serve_wrong(e, 400, "stream_options",
                           "stream_options: expected an object, and stream: true");
    return serve_fields_read(fields, COUNT(fields), x, a, e);
}

static bool read_seed(serve_ask *a, serve_error *e)
{
    json_t *x = a->seed_json;
    a->seed = serve_random();
    if (!x) return true;
    if (!json_is_integer(x)) return serve_wrong(e, 400, "seed", "seed: expected a whole number");
    a->seed = (uint64_t)json_integer_value(x);
    return true;
}

static bool read_length(const serve *s, serve_ask *a, serve_error *e)
{
    const int64_t most = s->args->tokens;
    json_t       *x = a->max_completion;
    const char   *name = x ? "max_completion_tokens" : "max_tokens";
    if (x && a->max_tokens >= 0)
        return serve_wrong(e, 400, name, "expected only one of %s and max_tokens", name);
    if (x && !is_within(x, 0, INT32_MAX))
        return serve_wrong(e, 400, name, "%s: expected a whole number", name);
    if (x) a->max_tokens = json_integer_value(x);
    if (a->max_tokens < 0) a->max_tokens = a->chat || most < 16 ? most : 16;
    if (a->max_tokens > most)
        return serve_wrong(e, 400, name, "%s: expected at most %lld, found %lld", name,
                           (long long)most, (long long)a->max_tokens);
    if (a->max_tokens == 0 && !a->echo && a->prompt_logprobs < 0 && !a->save_state &&
        !a->return_state)
        return serve_wrong(e, 400, name, "%s: expected 1 or more, or echo", name);
    return true;
}

/* ---- states ---------------------------------------------------------------------------------- */

static bool check_name(const char *param, const char *name, serve_error *e)
{
    if (!name || serve_state_name_ok(name)) return true;
    return serve_wrong(e, 400, param, "%s: expected 1 to %d of letters, digits and ._-", param,
                       SERVE_NAME);
}

static bool check_states(const serve_ask *a, serve_error *e)
{
    if (a->state && a->state_data)
        return serve_wrong(e, 400, "dra_state", "expected one of dra_state and dra_state_data");
    if (a->state_data && !json_is_string(a->state_data))
        return serve_wrong(e, 400, "dra_state_data", "dra_state_data: expected base64, found %s",
                           serve_kind_name(a->state_data));
    if ((a->save_state || a->return_state) && a->n > 1)
        return serve_wrong(e, 400, "n", "n: expected 1, as one state is kept");
    if (a->how.after && !a->state && !a->state_data)
        return serve_wrong(e, 400, "dra_after_answer",
                           "dra_after_answer: expected with dra_state or dra_state_data");
    if (a->echo && (a->state || a->state_data))
        return serve_wrong(e, 400, "echo", "echo: what a state has read is not known as text");
    if (a->prompt_logprobs >= 0 && (a->state || a->state_data))
        return serve_wrong(e, 400, "prompt_logprobs",
                           "prompt_logprobs: what a state has read is not known");
    return check_name("dra_state", a->state, e) && check_name("dra_save_state", a->save_state, e);
}

bool serve_ask_read(const serve *s, json_t *body, bool chat, serve_ask *a, serve_error *e)
{
    const serve_field *table = chat ? chat_fields : completion_fields;
    const size_t       n = chat ? COUNT(chat_fields) : COUNT(completion_fields);
    *a = (serve_ask){.chat = chat,
                     .max_tokens = -1,
                     .top_logprobs = -1,
                     .prompt_logprobs = -1,
                     .n = 1,
                     .sampler = {DRA_SAMPLER_USUAL},
                     .parallel = true,
                     .how.answer = true};
    if (!serve_fields_read(table, n, body, a, e)) return false;
    if (!chat && !a->prompt)
        return serve_wrong(e, 400, "prompt", "prompt: expected a text, ids, or lists of these");
    if (!serve_tools_read(a->tool_list, a->tool_choice, &a->tools, e)) return false;
    a->tools.single = !a->parallel;
    a->how.tools = a->tools.list;
    if (a->tools.list && (a->grammar || a->response_format))
        return serve_wrong(e, 400, "tools", "expected one of tools, grammar and response_format");
    if (a->tools.list && a->how.go_on)
        return serve_wrong(e, 400, "tools", "tools: not with continue_final_message");
    /* 0 keeps nothing but the most likely token, which the sampler has as all of them. */
    if (a->sampler.top_p == 0) a->sampler.top_p = 1e-9;
    return read_stop(a, e) && read_stop_tokens(a, e) && read_bias(a, e) && read_logprobs(a, e) &&
           read_stream(a, e) && read_seed(a, e) && read_length(s, a, e) && check_states(a, e);
}
