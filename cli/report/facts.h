/* What a run's folder says about how it was made, as pairs of a key and a value. */
#ifndef DRA_CLI_REPORT_FACTS_H
#define DRA_CLI_REPORT_FACTS_H

#include "dra/base.h"

typedef enum cli_fact_group {
    CLI_FACT_START,    /* train/started.jsonl: date, command, machine */
    CLI_FACT_TRAINING, /* train/config.json */
    CLI_FACT_MODEL,    /* config.json */
    CLI_FACT_DATA,     /* train/sources.jsonl */
    CLI_FACT_GROUPS
} cli_fact_group;

typedef struct cli_fact {
    cli_fact_group group;
    char           key[96]; /* "mixer.memory": nested keys are joined by dots */
    char           value[1024];
} cli_fact;

typedef struct cli_facts {
    size_t    n;
    cli_fact *all;
} cli_facts; /* starts as {0} */

/* Files that are missing or damaged add nothing; one that cannot be read is an error. */
dra_status cli_facts_read(const char *run, cli_facts *s, dra_error *err);
void       cli_facts_free(cli_facts *s);

/* NULL: it is not known. */
const char *cli_facts_find(const cli_facts *s, cli_fact_group group, const char *key);

#endif
