/* The grammar: someone owns a thing, goes somewhere, meets somebody, comes home with the thing. */
#include "support/story.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const names[] = {"Anna", "Ben", "Clara", "David", "Emma", "Felix"};
static const char *const things[] = {"a red ball", "an old map", "a silver key", "a warm hat"};
static const char *const places[] = {"the river", "the market", "the forest", "the hill"};
static const char *const weather[] = {"The sun was bright", "The wind was cold", "It was raining"};
static const char *const moods[] = {"happy", "tired", "hungry", "glad"};

unsigned story_random(uint64_t *seed, unsigned n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((*seed >> 33) % n);
}

static int one_story(char *text, size_t size, uint64_t *seed)
{
    const unsigned who = story_random(seed, COUNT(names));
    const unsigned other = (who + 1 + story_random(seed, COUNT(names) - 1)) % COUNT(names);
    const char    *thing = things[story_random(seed, COUNT(things))];
    const char    *place = places[story_random(seed, COUNT(places))];
    return snprintf(text, size,
                    "%s had %s. %s, and %s walked to %s. There %s met %s. \"Is that %s?\" asked "
                    "%s. \"Yes,\" said %s. They were %s and went home.\n\n",
                    names[who], thing, weather[story_random(seed, COUNT(weather))], names[who],
                    place, names[who], names[other], thing, names[other], names[who],
                    moods[story_random(seed, COUNT(moods))]);
}

void story_write(char *text, size_t size, uint64_t seed)
{
    char story[512];
    for (size_t at = 0; at < size;) {
        const int    n = one_story(story, sizeof story, &seed);
        const size_t take = (size_t)n < size - at ? (size_t)n : size - at;
        memcpy(text + at, story, take);
        at += take;
    }
}
