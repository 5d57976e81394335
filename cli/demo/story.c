/* The grammar of stories. A fact is a pair: a job and who has it in this story, "the baker Jonas",
 * $J in a sentence; $A is an animal, $F food, $W the weather. After the first word of a pair there
 * is always the second: so each return has one right answer. There is one kind of facts, because
 * models learn one kind after another, each quite suddenly and at a time that depends on the seed.
 */
#include "story.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- words ----------------------------------------------------------------------------------- */

enum { WORDS = 8 };

static const char *const jobs[WORDS] = {"baker",  "miller", "teacher", "sailor",
                                        "doctor", "farmer", "painter", "smith"};
static const char *const names[WORDS] = {"Anna", "Ben",   "Clara", "David",
                                         "Emma", "Felix", "Greta", "Jonas"};
static const char *const animals[] = {"dog", "cat", "goat", "horse", "rabbit", "donkey"};
static const char *const foods[] = {"bread", "soup", "cheese", "plums", "cake", "porridge"};
static const char *const weather[] = {"rain", "fog", "snow", "wind", "sunshine", "thunder"};

/* ---- sentences ------------------------------------------------------------------------------- */

typedef struct sentences {
    size_t             n;
    const char *const *form;
} sentences;

static const char *const tells[] = {"In the village lived the $J.", "There was the $J.",
                                    "Everybody knew the $J.", "One morning there came the $J."};

static const char *const agains[] = {
    "The $J fed the $A.",
    "The $J talked to the $J.",
    "The $J was tired.",
    "The $J sat down under a tree.",
    "The $A ran away from the $J.",
    "\"Where is the $J?\" asked the $J.",
    "They waited for the $J.",
    "Nobody had seen the $J.",
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
static const sentences tell = LIST(tells), again = LIST(agains);
static const sentences other = LIST(others);

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct fact {
    const char *word, *name;
    size_t      told; /* where the name was last told; 0: not yet */
} fact;

typedef struct teller {
    story   *s;
    uint64_t random;
    int      facts;
    fact     fact[STORY_FACTS];
} teller;

/* A number in 0 .. n - 1; the generator is SplitMix64. */
static unsigned draw_number(teller *t, size_t n)
{
    uint64_t x = t->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ x >> 31) % n);
}

static void put_text(story *s, const char *text, size_t n)
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

static void put_word(story *s, const char *word) { put_text(s, word, strlen(word)); }

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

/* Fills a slot: with the fact that the sentence is about if it was not told yet, else with another
 * one. */
static void put_slot(teller *t, char slot, int about, bool *said)
{
    if (slot == 'F') put_word(t->s, foods[draw_number(t, COUNT(foods))]);
    if (slot == 'W') put_word(t->s, weather[draw_number(t, COUNT(weather))]);
    if (slot == 'A') put_word(t->s, animals[draw_number(t, COUNT(animals))]);
    if (slot != 'J') return;
    if (*said) about = (about + 1 + (int)draw_number(t, (size_t)t->facts - 1)) % t->facts;
    *said = true;
    put_fact(t, &t->fact[about]);
}

/* Writes a blank and a sentence of a list, about a fact if it mentions one. */
static void put_sentence(teller *t, const sentences *list, int about)
{
    const char *form = list->form[draw_number(t, list->n)];
    bool        said = false;
    put_word(t->s, " ");
    while (*form) {
        const size_t n = strcspn(form, "$");
        put_text(t->s, form, n);
        form += n;
        if (!*form) break;
        put_slot(t, form[1], about, &said);
        form += 2;
    }
}

static void put_other(teller *t) { put_sentence(t, &other, 0); }

/* ---- a story --------------------------------------------------------------------------------- */

/* A number different from the n before it. */
static int choose_new(teller *t, const int *before, int n)
{
    int  x = 0;
    bool taken = true;
    while (taken) {
        x = (int)draw_number(t, WORDS);
        taken = false;
        for (int i = 0; i < n; i++) taken = taken || before[i] == x;
    }
    return x;
}

static void choose_facts(teller *t)
{
    int job[STORY_FACTS], name[STORY_FACTS];
    for (int i = 0; i < t->facts; i++) {
        job[i] = choose_new(t, job, i);
        name[i] = choose_new(t, name, i);
        t->fact[i] = (fact){jobs[job[i]], names[name[i]], 0};
    }
}

/* Tells all facts, in random order. */
static void tell_all(teller *t)
{
    bool done[STORY_FACTS] = {0};
    for (int n = 0; n < t->facts;) {
        const int i = (int)draw_number(t, (size_t)t->facts);
        if (done[i]) continue;
        done[i] = true;
        n++;
        put_sentence(t, &tell, i);
        if (draw_number(t, 2) == 0) put_other(t);
    }
}

void story_write(story *s, const story_config *c)
{
    teller t = {.s = s, .random = c->seed, .facts = c->facts};
    s->bytes = s->n = 0;
    choose_facts(&t);
    put_word(s, "Once upon a time.");
    tell_all(&t);
    for (int i = 0; i < c->gap; i++) put_other(&t);
    for (int i = 0; i < c->sentences; i++) {
        if (draw_number(&t, 8))
            put_sentence(&t, &again, (int)draw_number(&t, (size_t)t.facts));
        else
            put_other(&t);
    }
}

void story_free(story *s)
{
    free(s->text);
    free(s->returns);
    *s = (story){0};
}
