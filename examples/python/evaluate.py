"""Evaluate a model with lm-eval, on a task of one's own: a file of questions with four answers.

    python evaluate.py [MODEL]

`python -m dra.eval --model_args path=MODEL --tasks arc_easy` does it with tasks of the harness.
"""
import os
import sys
import tempfile

os.environ.setdefault("HF_DATASETS_OFFLINE", "1")  # the task is a file, nothing is fetched

import lm_eval
from lm_eval.tasks import TaskManager

import dra
import dra.eval

STORY = "The river carried four boats: a red one, a green one, a white one and a black one. " * 8
QUESTIONS = [{"question": STORY + "The %s boat came %s. It was" % (n, n),
              "choices": [" red", " green", " white", " black"], "answer": i}
             for i, n in enumerate(("first", "second", "third", "fourth"))]


def main():
    m = dra.load(sys.argv[1]) if len(sys.argv) > 1 else dra.load("dra-delta-tiny", seed=1)
    with tempfile.TemporaryDirectory() as room:
        os.environ.setdefault("HF_HOME", os.path.join(room, "cache"))
        dra.eval.write_task(room, "boats", QUESTIONS)
        found = lm_eval.simple_evaluate(dra.eval.DraLM(model=m), tasks=["boats"], bootstrap_iters=0,
                                        task_manager=TaskManager(include_path=room))
    print("accuracy %.2f, by chance 0.25" % found["results"]["boats"]["acc,none"])

    # The harness reads the story once: the numbers are those of score() after a fork of it.
    row = sorted(found["samples"]["boats"], key=lambda s: s["doc_id"])[0]
    state = m.read(QUESTIONS[0]["question"])
    for choice, (logprob, _) in zip(QUESTIONS[0]["choices"], row["filtered_resps"]):
        print("%-7s %8.3f  %8.3f" % (choice, logprob, m.score(choice, state=state).logprob))
        assert float(logprob) == m.score(choice, state=state).logprob


if __name__ == "__main__":
    main()
