/* The grammar of stories. In a sentence $N is a person, $h "her" or "his", and what belongs to the
 * person: $T a thing, $C its colour, $P where the home is, $A an animal, $M how that is called.
 * $O is another person, $F food, $W the weather. What belongs to somebody stands behind the name,
 * and the words between decide which kind it is: so each return has one right answer. */
#include "story.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- words ----------------------------------------------------------------------------------- */

/* The first half are women. */
static const char *const names[] = {"Anna",   "Berta", "Clara", "Dora",  "Emma", "Frida",
                                    "Greta",  "Hanna", "Ida",   "Julia", "Mira", "Olga",
                                    "Anton",  "Ben",   "Carlo", "David", "Emil", "Felix",
                                    "Gustav", "Hugo",  "Ivan",  "Jonas", "Leo",  "Simon"};
static const char *const things[] = {"lantern", "kite",   "drum",    "compass", "flute", "clock",
                                     "basket",  "mirror", "trumpet", "ladder",  "wagon", "bottle",
                                     "knife",   "hammer", "violin",  "boat"};
static const char *const colours[] = {"red",    "blue",   "green", "yellow", "black", "white",
                                      "silver", "golden", "brown", "purple", "grey",  "pink"};
static const char *const places[] = {"mill",  "harbour", "bridge", "church",  "forest", "market",
                                     "tower", "well",    "beach",  "station", "castle", "quarry"};
static const char *const animals[] = {"dog",  "cat",   "goat", "horse",  "rabbit", "donkey",
                                      "duck", "goose", "fox",  "parrot", "pig",    "hen"};
static const char *const pets[] = {"Pepper", "Biscuit", "Shadow", "Button", "Pickle",  "Cloud",
                                   "Velvet", "Rocket",  "Pebble", "Nutmeg", "Thunder", "Ginger"};
static const char *const foods[] = {"bread", "soup", "cheese", "plums", "cake", "porridge"};
static const char *const weather[] = {"rain", "fog", "snow", "wind", "sunshine", "thunderstorm"};

/* ---- sentences ------------------------------------------------------------------------------- */

enum { THING, COLOUR, PLACE, ANIMAL, PET, KINDS };

typedef struct sentences {
    size_t             n;
    const char *const *form;
} sentences;

static const char *const tell_thing[] = {"$N had a $T.", "$N had found a $T.",
                                         "For a birthday $N had been given a $T."};
static const char *const tell_colour[] = {"$N's $T was $C.", "$N had painted $h $T $C."};
static const char *const tell_place[] = {"$N lived by the $P.", "Home for $N was by the $P."};
static const char *const tell_animal[] = {"$N shared the house with a $A.", "With $N lived a $A."};
static const char *const tell_pet[] = {"$N called the $A $M.", "$N had named the $A $M."};

static const char *const again_thing[] = {"$N polished $h $T.", "Again $N took out $h $T.",
                                          "$N was proud of $h $T.",
                                          "Nobody but $N might touch $h $T."};
static const char *const again_colour[] = {"$N's $T was $C.", "$N's $T shone $C in the light.",
                                           "Everybody knew that $N's $T was $C."};
static const char *const again_place[] = {"$N went home to the $P.", "$N still lived by the $P.",
                                          "In the evening $N walked back to the $P."};
static const char *const again_animal[] = {"$N fed the $A.", "$N went for a walk with the $A.",
                                           "$N brushed the $A."};
static const char *const again_pet[] = {"$N whispered a secret to $M.", "$N looked for $M.",
                                        "$N called the $A $M."};

static const char *const others[] = {
    "It was a day of $W.",
    "After the $W came $W.",
    "The children played in the $W.",
    "Nobody said a word.",
    "A cart rolled past.",
    "The bells rang twice.",
    "Somewhere a door fell shut.",
    "$N laughed.",
    "$N was tired and hungry.",
    "$N ate some $F.",
    "$N cooked $F for $O.",
    "$N gave $O some $F.",
    "$N met $O on the road.",
    "$N and $O talked about the $W.",
    "\"What a day!\" said $N.",
    "\"Do you like $F?\" asked $N.",
    "Then $N sat down and thought of nothing.",
    "In the shop there was $F, but no $F.",
    "The old teacher told them about $W and $F.",
    "Two strangers asked for the way and for some $F.",
    "Far away somebody was singing.",
    "The night was long, and there was $W.",
};

#define LIST(a)                                                                                    \
    {                                                                                              \
        COUNT(a), a                                                                                \
    }
static const sentences tell[KINDS] = {LIST(tell_thing), LIST(tell_colour), LIST(tell_place),
                                      LIST(tell_animal), LIST(tell_pet)};
static const sentences again[KINDS] = {LIST(again_thing), LIST(again_colour), LIST(again_place),
                                       LIST(again_animal), LIST(again_pet)};
static const sentences other = LIST(others);

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct person {
    const char *name, *word[KINDS];
    bool        woman;
    size_t      told[KINDS]; /* where the word was said last; 0: not yet */
} person;

typedef struct teller {
    story   *s;
    uint64_t random;
    int      people;
    person   person[STORY_PEOPLE];
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

/* A word that belongs to somebody; the blank before it is written already. */
static void put_fact(teller *t, person *p, int kind)
{
    const size_t at = t->s->bytes - 1;
    if (p->told[kind])
        note_return(t->s, &(story_return){at, strlen(p->word[kind]) + 1, p->told[kind], t->people});
    p->told[kind] = at;
    put_word(t->s, p->word[kind]);
}

static void put_slot(teller *t, char slot, person *p, const person *o)
{
    static const char kinds[] = "TCPAM";
    switch (slot) {
    case 'N': put_word(t->s, p->name); break;
    case 'O': put_word(t->s, o->name); break;
    case 'h': put_word(t->s, p->woman ? "her" : "his"); break;
    case 'F': put_word(t->s, foods[draw(t, COUNT(foods))]); break;
    case 'W': put_word(t->s, weather[draw(t, COUNT(weather))]); break;
    default: put_fact(t, p, (int)(strchr(kinds, slot) - kinds));
    }
}

/* A sentence of a list about person i, with a blank before it. */
static void say(teller *t, const sentences *list, int i)
{
    const char *form = list->form[draw(t, list->n)];
    const int   o = (i + 1 + (int)draw(t, (size_t)t->people - 1)) % t->people;
    put_word(t->s, " ");
    while (*form) {
        const size_t n = strcspn(form, "$");
        put(t->s, form, n);
        form += n;
        if (!*form) break;
        put_slot(t, form[1], &t->person[i], &t->person[o]);
        form += 2;
    }
}

static void say_other(teller *t) { say(t, &other, (int)draw(t, (size_t)t->people)); }

/* ---- a story --------------------------------------------------------------------------------- */

/* Nobody shares a word with another person of the story. */
static void choose(teller *t, size_t n, const char *const *words, const char **out, int i, int kind)
{
    for (bool taken = true; taken;) {
        taken = false;
        *out = words[draw(t, n)];
        for (int k = 0; k < i; k++)
            taken = taken || *out == (kind < 0 ? t->person[k].name : t->person[k].word[kind]);
    }
}

static void choose_people(teller *t)
{
    for (int i = 0; i < t->people; i++) {
        person *p = &t->person[i];
        choose(t, COUNT(names), names, &p->name, i, -1);
        choose(t, COUNT(things), things, &p->word[THING], i, THING);
        choose(t, COUNT(colours), colours, &p->word[COLOUR], i, COLOUR);
        choose(t, COUNT(places), places, &p->word[PLACE], i, PLACE);
        choose(t, COUNT(animals), animals, &p->word[ANIMAL], i, ANIMAL);
        choose(t, COUNT(pets), pets, &p->word[PET], i, PET);
        for (size_t k = 0; k < COUNT(names) / 2; k++) p->woman = p->woman || p->name == names[k];
    }
}

/* All there is to know, in any order, but things before their colours and animals before their
 * names. */
static void tell_all(teller *t)
{
    const int todo = t->people * KINDS;
    bool      done[STORY_PEOPLE * KINDS] = {0};
    for (int n = 0; n < todo;) {
        const int  k = (int)draw(t, (size_t)todo), kind = k % KINDS;
        const bool early = (kind == COLOUR || kind == PET) && !done[k - 1];
        if (done[k] || early) continue;
        say(t, &tell[kind], k / KINDS);
        done[k] = true;
        n++;
        if (draw(t, 4) == 0) say_other(t);
    }
}

static void introduce(teller *t)
{
    put_word(t->s, "This is a story of");
    for (int i = 0; i < t->people; i++) {
        put_word(t->s, i == 0 ? " " : i + 1 < t->people ? ", " : " and ");
        put_word(t->s, t->person[i].name);
    }
    put_word(t->s, ".");
}

void story_write(story *s, const story_config *c)
{
    teller t = {.s = s, .random = c->seed, .people = c->people};
    s->bytes = s->n = 0;
    choose_people(&t);
    introduce(&t);
    tell_all(&t);
    for (int i = 0; i < c->gap; i++) say_other(&t);
    for (int i = 0; i < c->sentences; i++) {
        if (draw(&t, 3))
            say(&t, &again[draw(&t, KINDS)], (int)draw(&t, (size_t)t.people));
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
