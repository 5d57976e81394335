"""Read a long text once, and ask it a hundred questions: each goes on from a fork of the state.

    python a_hundred_questions.py [MODEL [TEXT]]

Without a model its weights are drawn, which is as fast and answers nonsense.
"""
import sys
import time

import dra

TEXT = "".join("On day %d the river rose by %d fingers and carried %d boats. " % (i, i % 7, i % 11)
               for i in range(400))


def main():
    m = dra.load(sys.argv[1]) if len(sys.argv) > 1 else dra.load("dra-delta-tiny", seed=1)
    text = open(sys.argv[2]).read() if len(sys.argv) > 2 else TEXT

    start = time.perf_counter()
    told = m.read(text)  # the only time that it is read
    reading = time.perf_counter() - start
    print("read %d tokens; the state has %d bytes" % (told.tokens, told.nbytes))

    start = time.perf_counter()
    answers = {}
    for day in range(100):
        question = "\nHow far did the river rise on day %d? " % day
        answers[question] = m.generate(question, tokens=5, state=told.fork(), temperature=0)
    asking = time.perf_counter() - start
    print("%d answers; reading the text takes as long as %.0f of them" %
          (len(answers), 100 * reading / asking))

    # A fork is a state of its own: what the first question did to it, the last one has not seen.
    first, last = list(answers)[0], list(answers)[-1]
    alone = m.generate(text + last, tokens=5, temperature=0)
    print("the last answer is that of a reading of its own: %s" % (answers[last] == alone))
    assert m.generate(first, tokens=5, state=told.fork(), temperature=0) == answers[first]

    # It can be put away, in a file or in pickles, and asked tomorrow.
    again = m.load_state(told.to_bytes())
    assert m.generate(first, tokens=5, state=again, temperature=0) == answers[first]


if __name__ == "__main__":
    main()
