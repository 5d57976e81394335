/* Stories to learn from. What is told early, such as who the
 * baker is, returns later, with sentences in between that say nothing about it. The same seed gives
 * the same bytes on every machine. */
#ifndef DRA_CLI_DEMO_STORY_H
#define DRA_CLI_DEMO_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct story_return { /* a place where something told before is repeated */
    size_t at, bytes;         /* the word, with the blank before it */
    size_t told;              /* the same word where the story said it last */
    int    choices;           /* names that the story has */
} story_return;

typedef struct story { /* starts as {0}; a 0 byte follows its text */
    char         *text;
    size_t        bytes, room;
    story_return *returns;
    size_t        n, n_room;
    bool          failed; /* out of memory: what is there is cut short */
} story;

typedef struct story_config {
    uint64_t seed;
    int      facts;     /* 2 to STORY_FACTS */
    int      gap;       /* sentences between the telling and the first return */
    int      sentences; /* after them; seven of eight return something */
} story_config;

enum { STORY_FACTS = 8 };

/* One story on one line, without its end. It replaces what is there. */
void story_write(story *s, const story_config *c);
void story_free(story *s);

#endif
