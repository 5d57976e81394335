/* The grammar of stories. A fact is a pair: a word and the name that goes with it in this story,
 * "the baker Jonas", "the goat Pickle". In a sentence $J is a job and who has it, $A an animal and
 * its name, $B a boat and its name, $C a colour and the thing that has it; $F is food, $W the
 * weather. After the first word of a pair there is always the second: so each return has one right
 * answer. */
#include "story.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- words ----------------------------------------------------------------------------------- */

enum { WORDS = 8 };

typedef struct kind {
    char        slot; /* of sentences */
    const char *word[WORDS], *name[WORDS];
} kind;

static const kind kinds[] = {
    {'J',
     {"baker", "miller", "teacher", "sailor", "doctor", "farmer", "painter", "smith"},
     {"Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Jonas"}},
    {'A',
     {"dog", "cat", "goat", "horse", "rabbit", "donkey", "goose", "parrot"},
     {"Pepper", "Biscuit", "Shadow", "Button", "Pickle", "Velvet", "Nutmeg", "Ginger"}},
    {'B',
     {"ferry", "ship", "barge", "raft", "canoe", "yacht", "steamer", "tug"},
     {"Aurora", "Fortune", "Swallow", "Comet", "Albatross", "Neptune", "Mermaid", "Pelican"}},
    {'C',
     {"red", "blue", "green", "yellow", "black", "white", "silver", "golden"},
     {"lantern", "kite", "drum", "compass", "flute", "clock", "basket", "violin"}},
};

enum { KINDS = COUNT(kinds) };

static const char *const foods[] = {"bread", "soup", "cheese", "plums", "cake", "porridge"};
static const char *const weather[] = {"rain", "fog", "snow", "wind", "sunshine", "thunder"};

/* ---- sentences ------------------------------------------------------------------------------- */

typedef struct sentences {
    size_t             n;
    const char *const *form;
} sentences;

static const char *const tell_job[] = {"In the village lived the $J.", "There was the $J.",
                                       "Everybody knew the $J."};
static const char *const tell_animal[] = {"Behind the house lived the $A.",
                                          "One morning there came the $A."};
static const char *const tell_boat[] = {"In the harbour lay the $B.",
                                        "Down by the water they built the $B."};
static const char *const tell_thing[] = {"On the table stood the $C.",
                                         "Somebody had forgotten the $C."};

static const char *const again_job[] = {
    "The $J looked for the $C.", "The $J fed the $A.", "The $J sailed away on the $B.",
    "The $J talked to the $J.",  "The $J was tired.",  "\"Where is the $J?\" asked the $J.",
};
static const char *const again_animal[] = {
    "The $A was asleep.",
    "The $A ran away from the $A.",
    "The $A sat beside the $J.",
    "\"Where is the $A?\" asked the $J.",
};
static const char *const again_boat[] = {
    "The $B came back.",
    "The $J waited for the $B.",
    "The $B was faster than the $B.",
    "The $A was on the $B.",
};
static const char *const again_thing[] = {
    "Nobody had touched the $C.",
    "The $J found the $C.",
    "The $C was on the $B.",
    "\"Give me the $C!\" said the $J.",
};

static const char *const others[] = {
    "It was a day of $W.",
    "After the $W came $W.",
    "The children played in the $W.",
    "Nobody said a word.",
    "A cart rolled past.",
    "The bells rang twice.",
    "Somewhere a door fell shut.",
    "Somebody laughed.",
    "They were all hungry.",
    "They ate some $F.",
    "There was $F for everybody.",
    "The children wanted $F and got $F.",
    "An old man talked about the $W.",
    "\"What a day!\" they said.",
    "\"Do you like $F?\" asked a child.",
    "Then they sat down and thought of nothing.",
    "In the shop there was $F, but no $F.",
    "Two strangers asked for the way and for some $F.",
    "Far away somebody was singing.",
    "The night was long, and there was $W.",
};

#define LIST(a)                                                                                    \
    {                                                                                              \
        COUNT(a), a                                                                                \
    }
static const sentences tell[KINDS] = {LIST(tell_job), LIST(tell_animal), LIST(tell_boat),
                                      LIST(tell_thing)};
static const sentences again[KINDS] = {LIST(again_job), LIST(again_animal), LIST(again_boat),
                                       LIST(again_thing)};
static const sentences other = LIST(others);

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct fact {
    const char *word, *name;
    size_t      told; /* where the name was said last; 0: not yet */
} fact;

typedef struct teller {
    story   *s;
    uint64_t random;
    int      facts; /* of each kind */
    fact     fact[KINDS][STORY_FACTS];
} teller;

/* A number in 0 .. n - 1; the generator is SplitMix64. */
static unsigned draw(teller *t, size_t n)
{
    uint64_t x = t->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ x >> 31) % n);
}

static void put(story *s, const char *text, size_t n)
{
    if (s->bytes + n + 1 > s->room) {
        const size_t room = 2 * (s->bytes + n + 1);
        char        *more = s->failed ? NULL : realloc(s->text, room);
        if (!more) {
            s->failed = true;
            return;
        }
        s->text = more;
        s->room = room;
    }
    memcpy(s->text + s->bytes, text, n);
    s->bytes += n;
    s->text[s->bytes] = '\0';
}

static void put_word(story *s, const char *word) { put(s, word, strlen(word)); }

static void note_return(story *s, const story_return *r)
{
    if (s->n == s->n_room) {
        const size_t  room = s->n ? 2 * s->n : 16;
        story_return *more = s->failed ? NULL : realloc(s->returns, room * sizeof *more);
        if (!more) {
            s->failed = true;
            return;
        }
        s->returns = more;
        s->n_room = room;
    }
    s->returns[s->n++] = *r;
}

/* Both words of a pair. */
static void put_fact(teller *t, fact *f)
{
    put_word(t->s, f->word);
    const size_t at = t->s->bytes;
    if (f->told) note_return(t->s, &(story_return){at, strlen(f->name) + 1, f->told, t->facts});
    f->told = at;
    put_word(t->s, " ");
    put_word(t->s, f->name);
}

/* What a slot stands for: the fact the sentence is about, where it is of this kind and was not said
 * yet; else another one. */
static void put_slot(teller *t, char slot, const fact *about, bool *said)
{
    int k = 0;
    if (slot == 'F') put_word(t->s, foods[draw(t, COUNT(foods))]);
    if (slot == 'W') put_word(t->s, weather[draw(t, COUNT(weather))]);
    while (k < KINDS && kinds[k].slot != slot) k++;
    if (k == KINDS) return;
    fact *f = t->fact[k];
    if (about >= f && about < f + STORY_FACTS) {
        const int i = (int)(about - f);
        f += *said ? (i + 1 + (int)draw(t, (size_t)t->facts - 1)) % t->facts : i;
        *said = true;
    } else {
        f += draw(t, (size_t)t->facts);
    }
    put_fact(t, f);
}

/* A sentence of a list, with a blank before it; `about`: NULL for none. */
static void say(teller *t, const sentences *list, const fact *about)
{
    const char *form = list->form[draw(t, list->n)];
    bool        said = false;
    put_word(t->s, " ");
    while (*form) {
        const size_t n = strcspn(form, "$");
        put(t->s, form, n);
        form += n;
        if (!*form) break;
        put_slot(t, form[1], about, &said);
        form += 2;
    }
}

static void say_other(teller *t) { say(t, &other, NULL); }

/* ---- a story --------------------------------------------------------------------------------- */

/* A number that none of those before it has. */
static int choose(teller *t, const int *before, int n)
{
    int  x = 0;
    bool taken = true;
    while (taken) {
        x = (int)draw(t, WORDS);
        taken = false;
        for (int i = 0; i < n; i++) taken = taken || before[i] == x;
    }
    return x;
}

static void choose_facts(teller *t)
{
    for (int k = 0; k < KINDS; k++) {
        int words[STORY_FACTS], names[STORY_FACTS];
        for (int i = 0; i < t->facts; i++) {
            words[i] = choose(t, words, i);
            names[i] = choose(t, names, i);
            t->fact[k][i] = (fact){kinds[k].word[words[i]], kinds[k].name[names[i]], 0};
        }
    }
}

/* All there is to know, in any order. */
static void tell_all(teller *t)
{
    const int todo = t->facts * KINDS;
    bool      done[STORY_FACTS * KINDS] = {0};
    for (int n = 0; n < todo;) {
        const int i = (int)draw(t, (size_t)todo);
        if (done[i]) continue;
        done[i] = true;
        n++;
        say(t, &tell[i % KINDS], &t->fact[i % KINDS][i / KINDS]);
        if (draw(t, 4) == 0) say_other(t);
    }
}

void story_write(story *s, const story_config *c)
{
    teller t = {.s = s, .random = c->seed, .facts = c->facts};
    s->bytes = s->n = 0;
    choose_facts(&t);
    put_word(s, "Once upon a time.");
    tell_all(&t);
    for (int i = 0; i < c->gap; i++) say_other(&t);
    for (int i = 0; i < c->sentences; i++) {
        const int k = (int)draw(&t, KINDS);
        if (draw(&t, 8))
            say(&t, &again[k], &t.fact[k][draw(&t, (size_t)t.facts)]);
        else
            say_other(&t);
    }
}

void story_free(story *s)
{
    free(s->text);
    free(s->returns);
    *s = (story){0};
}
