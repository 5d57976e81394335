/* What a JSON object of a tokenizer may hold: tables say which keys there may be and which values
 * they may have; all else is refused by name. */
#ifndef DRA_SRC_TEXT_READ_RULES_H
#define DRA_SRC_TEXT_READ_RULES_H

#include "file/json.h"
#include "text/vocabulary.h"

enum { /* what a value may be */
       DRA_RULE_NULL = 1,
       DRA_RULE_OFF = 2,
       DRA_RULE_ON = 4,
       DRA_RULE_EMPTY = 8,
       DRA_RULE_ZERO = 16,
       DRA_RULE_TEXT = 32,
       DRA_RULE_NUMBER = 64,
       DRA_RULE_LIST = 128,
       DRA_RULE_OBJECT = 256,
       DRA_RULE_NEEDED = 512, /* the key has to be there */
       DRA_RULE_BOOL = DRA_RULE_ON | DRA_RULE_OFF
};

typedef struct dra_rule {
    const char *key;
    unsigned    takes;
    const char *text; /* the only one it takes */
} dra_rule;

/* Every key has a rule, every value keeps it; the last has no key. `place` is "" or ends with a
 * dot. */
dra_status dra_rules_check(const dra_vocabulary *v, const char *place, const json_t *object,
                           const dra_rule *rules);
/* Says what was expected and what was found; `value` NULL: nothing. */
dra_status dra_rules_refuse(const dra_vocabulary *v, const char *place, const dra_rule *r,
                            const json_t *value);

#endif
