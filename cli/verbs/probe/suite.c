/* The models of `dra probe --suite`: one config, another memory each. */
#include "suite.h"
#include "io/model.h"

#include <string.h>

/* 2 layers, C = 128, the token before mixed into half of the channels. Gates of slots: routed, of
 * one slot fixed. */
static const char base[] =
    "{\"model_type\": \"dra\", \"vocab\": 256, \"dim\": 128, \"depth\": 2, \"heads\": 2, "
    "\"mixer\": {\"shift\": \"half\"}}";

static const struct {
    const char *name, *set[4][2];
} suite[] = {
    {"append", {{"mixer.memory", "append"}, {"mixer.retrieval", "time"}}},
    {"gru", {{"mixer.memory", "gru"}, {"mixer.retrieval", "time"}}},
    {"moment", {{"mixer.memory", "moment"}, {"mixer.phi", "elu1"}}},
    {"delta", {{"mixer.memory", "delta"}}},
    {"slots-16", {{"mixer.memory", "slots"}, {"mixer.slots", "16"}, {"mixer.tau", "4"}}},
    {"slots-32", {{"mixer.memory", "slots"}, {"mixer.slots", "32"}, {"mixer.tau", "4"}}},
    {"slots-1", {{"mixer.memory", "slots"}, {"mixer.slots", "1"}, {"heads", "8"}}},
};

dra_status cli_suite_config(const char *name, dra_model_config **out, dra_error *err)
{
    dra_guess guess = {.typed = name};
    for (size_t i = 0; i < COUNT(suite); i++) {
        dra_guess_try(&guess, suite[i].name);
        if (strcmp(suite[i].name, name) != 0) continue;
        dra_status st = dra_model_config_parse("suite", base, sizeof base - 1, out, err);
        for (size_t k = 0; k < COUNT(suite[i].set) && suite[i].set[k][0] && st == DRA_OK; k++)
            st = dra_model_config_set(*out, suite[i].set[k][0], suite[i].set[k][1], err);
        return st;
    }
    return cli_error(err, DRA_ERR_VALUE, "--only: no such model of the suite: '%.60s'%s%s%s", name,
                     guess.best ? "; did you mean " : "", guess.best ? guess.best : "",
                     guess.best ? "?" : "");
}

void cli_suite_names(char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; i < COUNT(suite); i++)
        snprintf(text + strlen(text), size - strlen(text), "%s%s", i ? "," : "", suite[i].name);
}
